//! The provider on AWS in memory.

mod classes;
#[path = "../cluster/mod.rs"]
mod cluster;
mod conforms;
mod health;
mod interruptions;
mod joined;
mod launches;
mod lives;
mod measures;
mod permissions;
mod prices;
mod reservations;
mod shifts;
mod templates;
mod trouble;
mod world;
