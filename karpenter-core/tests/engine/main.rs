//! The engine against a cluster of a few lines, second by second.

mod catalogs;
mod documented;
mod ending;
mod foreign;
mod held_up;
mod overlays;
mod provisioning;
mod readiness;
mod refusals;
mod slots;
mod static_pools;
mod swarm;
mod taking_away;
mod turns;
mod world;
