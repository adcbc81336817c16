"""What is wrong, and what to do: this machine, a preparation script, a corpus."""
