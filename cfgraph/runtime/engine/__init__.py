"""The token executor: plans, linked closures, frames, and rendezvous."""
