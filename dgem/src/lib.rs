//! dgem
