//! What comes of the commands that take nodes away: each is carried out on a plain cluster of objects, and what the engine
//! said is held against what is there then.

mod balanced;
mod guards;
mod laws;
mod moves;
mod oracle;
mod reservations;
mod static_pools;
mod terms;
mod validity;
mod world;
