//! dgemma-server
