"""Foundation of the op families: Op class, facts, shape functions, gradient API, evaluation."""
