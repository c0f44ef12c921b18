"""Result tables to figures and one page. Nothing is computed here."""
