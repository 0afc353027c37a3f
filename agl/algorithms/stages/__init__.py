"""What algorithms need that run others as their stages: where each stands, what each took, and what was handed on."""
