"""What every op family builds on: the Op class, shape functions, the gradient API, evaluation."""
