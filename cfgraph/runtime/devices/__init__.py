"""The devices that a run may use."""
