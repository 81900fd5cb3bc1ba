"""What a person sees: tables in the terminal, one self-contained HTML file."""
