//! Which nodes should go, and what comes in their place.
//!
//! A node goes because it is empty, because it is not what its pool asks for any more, or because its pods have a cheaper
//! place. Whether it may go is a question of its own: pods, budgets and annotations protect it.

mod allowance;
mod balance;
mod budget;
mod candidate;
mod climb;
mod command;
mod consolidate;
mod cost;
mod cover;
mod cron;
mod disruptor;
mod drift;
mod eviction;
mod extend;
mod guard;
mod holdup;
mod hurdle;
mod outlook;
mod pool_outlook;
mod roster;
mod scene;
mod static_drift;
mod survey;
mod terms;
mod validate;

pub use balance::MIN_BALANCE;
pub use budget::{ActiveBudget, BudgetFault, BudgetLimit, NodeCounts, PoolBudgets, UnreadableBudget};
pub use candidate::{Candidate, Candidates, Kept};
pub use command::{Command, Method, UnknownMethod};
pub(crate) use cost::disruption_cost;
use cost::rescheduling_cost;
pub use cost::{NODE_COST, eviction_cost, price_of};
pub use cron::{Schedule, ScheduleError, ScheduleFault, ScheduleField};
pub use disruptor::{Commands, Disruptor, DisruptorOptions};
pub(crate) use disruptor::{Homeless, Standing};
pub use drift::{Drift, ProviderDrift, drift_order, drifted_since};
pub use eviction::{EvictionLimit, EvictionLimits, Toll};
pub(crate) use guard::join;
pub use guard::{Guard, Scope};
pub(crate) use holdup::holdups;
pub use outlook::{Alone, NodeOutlook, ReasonOutlook};
pub use pool_outlook::{PoolBudget, PoolOutlook};
pub(crate) use roster::Roster;
pub(crate) use static_drift::static_claim;
pub use terms::SpotToSpot;
pub use validate::Invalid;
