//! The provider on AWS in memory.

mod cluster;
mod conforms;
mod interruptions;
mod launches;
mod lives;
mod world;
