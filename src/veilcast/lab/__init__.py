"""The lab: experiments, attackers and audits, on Spark. Needs the extra `veilcast[lab]`; nothing below imports it."""
