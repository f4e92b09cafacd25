//! Which nodes should go, and what comes in their place.
//!
//! A node goes because it is empty, because it is not what its pool asks for any more, or because its pods have a cheaper
//! place. Whether it may go is a question of its own: pods, budgets and annotations protect it.

mod budget;
mod cron;

pub use budget::{ActiveBudget, BudgetFault, BudgetLimit, NodeCounts, PoolBudgets, UnreadableBudget};
pub use cron::{Schedule, ScheduleError, ScheduleFault, ScheduleField};
