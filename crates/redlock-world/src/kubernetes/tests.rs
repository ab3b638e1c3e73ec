//! Tests of each behaviour of the API server.

mod deletion;
mod faults;
mod ownership;
mod support;
mod watching;
mod writes;
