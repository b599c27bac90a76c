//! Ferrovirt objects.
