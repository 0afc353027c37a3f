"""What an answer is worth. The reward is all that training knows of what you want."""


def grade(result: object, task: dict[str, str]) -> float:
    """Return 1.0 when the agent's answer is the name of the right queue and nothing else, 0.0 otherwise."""
    return float(str(result).strip().lower() == task["queue"])
