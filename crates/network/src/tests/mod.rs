//! Tests on real network namespaces.
