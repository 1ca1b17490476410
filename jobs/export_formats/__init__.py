"""What an export can be written as: one module a family of formats, and the joins that they start from."""
