"""What every permille service shares."""
