//! Moves, guests and pods for tests.
