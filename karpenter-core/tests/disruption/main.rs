//! Which nodes may go, which do, and which have drifted: what users of the disruptor see.

mod budgets;
mod cron;
mod drift;
mod evictions;
mod guards;
mod searches;
mod settled_pods;
mod static_hash;
