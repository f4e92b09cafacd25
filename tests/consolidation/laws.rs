//! What holds of every command, on random clusters.
