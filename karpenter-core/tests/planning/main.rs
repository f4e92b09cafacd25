//! Which nodes there should be, and which pods they are for: what users of the planner see.

mod company;
mod contention;
mod domains;
mod explanations;
mod landing;
mod loners;
mod mixtures;
mod options;
mod places;
mod plans;
mod pool_outlooks;
mod preferences;
mod promises;
mod queue;
mod reasons;
mod replans;
mod reservations;
mod rooms;
mod shared_spreads;
mod sharing;
mod spreads;
mod usage;
mod weighed_preferences;
