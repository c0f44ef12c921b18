"""Result tables to figures and one page. Computes nothing."""
