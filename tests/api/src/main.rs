//! Runs the API cases against any cluster that a kubeconfig names.

fn main() {}
