//! The `ferrovirt` command: parses arguments and calls the library that does the work.

fn main() {}
