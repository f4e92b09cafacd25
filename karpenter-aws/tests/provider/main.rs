//! The provider on AWS in memory.

mod cluster;
mod conforms;
mod health;
mod interruptions;
mod launches;
mod lives;
mod permissions;
mod world;
