//! How many nodes of a pool may be disturbed at once.

use std::{fmt, time::Duration};

use super::cron::{Schedule, ScheduleError};
use crate::{
    Timestamp,
    api::{Budget, BudgetError, DisruptionReason, IntOrPercent, NodePool},
};

/// How many times of a schedule are looked at for the end of the windows that they open: a week of minutes.
const MAX_JOINED_WINDOWS: usize = 7 * 24 * 60;

/// The disruption budgets of a pool, read and ready to be asked.
///
/// ```
/// use karpenter_core::{
///     api::{Budget, DisruptionReason, NodePool},
///     disrupt::{NodeCounts, PoolBudgets},
/// };
///
/// let mut pool = NodePool::named("general");
/// let mut nights = Budget::default();
/// nights.nodes = "0".to_owned();
/// nights.schedule = Some("0 22 * * *".to_owned());
/// nights.duration = Some("8h".to_owned());
/// pool.spec.disruption.budgets.push(nights);
///
/// let budgets = PoolBudgets::of(&pool);
/// let nodes = NodeCounts { managed: 25, not_ready_or_leaving: 1 };
/// let noon = budgets.limit(DisruptionReason::Drifted, nodes, "2026-01-01T12:00:00Z".parse()?);
/// assert_eq!(noon.allowed(), 2);
/// let night = budgets.limit(DisruptionReason::Drifted, nodes, "2026-01-01T23:00:00Z".parse()?);
/// assert_eq!(night.allowed(), 0);
/// assert_eq!(night.to_string(), "spec.disruption.budgets[1] allows 0 until 2026-01-02T06:00:00Z, 1 taken");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PoolBudgets {
    rules: Result<Vec<Rule>, UnreadableBudget>,
}

/// The nodes of a pool as its budgets count them.
///
/// A node counts if it has a claim of the pool and is initialized, and the claim does not say that its instance is
/// terminating (condition `InstanceTerminating`). All others are neither managed nor leaving here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// How many nodes count; percentages are of these.
    pub managed: u32,
    /// How many of them are not `Ready`, are being deleted, or were chosen to go (taint `karpenter.sh/disrupted`). Each takes one
    /// of those that the budgets allow.
    pub not_ready_or_leaving: u32,
}

/// How many nodes of a pool may be disturbed for a reason, and what sets the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BudgetLimit {
    /// No budget counts for the reason now.
    Unlimited,
    /// The tightest of the budgets that count, the first of equals.
    Tightest(ActiveBudget),
    /// A budget cannot be read, so nothing is allowed, for whatever reason.
    Unreadable(UnreadableBudget),
}

/// A budget that counts now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveBudget {
    /// Its place in `spec.disruption.budgets`, from 0.
    pub index: usize,
    /// How many nodes it allows to be away at once, of those that the pool has now.
    pub nodes: u32,
    /// How many of them are away already: not ready or leaving.
    pub taken: u32,
    /// When it ceases to count; `None` if it always counts, or no end of it is in sight.
    pub until: Option<Timestamp>,
}

/// A budget that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.disruption.budgets[{index}].{}: {fault}", fault.field())]
#[non_exhaustive]
pub struct UnreadableBudget {
    /// Its place in `spec.disruption.budgets`, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub fault: BudgetFault,
}

/// Why a budget cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetFault {
    /// A number or a duration is none, or a field is missing.
    #[error(transparent)]
    Field(#[from] BudgetError),
    /// The schedule is none.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

impl BudgetFault {
    /// The name of the field on the wire.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Field(error) => error.field(),
            Self::Schedule(_) => "schedule",
        }
    }
}

impl PoolBudgets {
    /// Reads the budgets of a pool.
    pub fn of(pool: &NodePool) -> Self {
        let budgets = pool.spec.disruption.budgets.iter().enumerate();
        let read = |(index, budget)| Rule::read(budget).map_err(|fault| UnreadableBudget { index, fault });
        Self { rules: budgets.map(read).collect() }
    }

    /// The first budget that cannot be read. If there is one, no node of the pool may be disturbed.
    pub fn unreadable(&self) -> Option<&UnreadableBudget> {
        self.rules.as_ref().err()
    }

    /// How many nodes of the pool may be disturbed for this reason at `now`, beside those that are away already.
    ///
    /// The least of the budgets counts that are for the reason and whose window is open: one that opened less than its
    /// duration ago. A budget whose schedule never comes within the years that [`Schedule::next_after`] looks at always
    /// counts, as in Karpenter.
    pub fn limit(&self, reason: DisruptionReason, nodes: NodeCounts, now: Timestamp) -> BudgetLimit {
        let rules = match &self.rules {
            Ok(rules) => rules,
            Err(error) => return BudgetLimit::Unreadable(error.clone()),
        };
        let counting = rules.iter().enumerate().filter(|(_, rule)| rule.is_for(reason) && rule.is_active(now));
        let Some((index, rule)) = counting.min_by_key(|(_, rule)| rule.nodes.of(nodes.managed)) else {
            return BudgetLimit::Unlimited;
        };
        BudgetLimit::Tightest(ActiveBudget {
            index,
            nodes: rule.nodes.of(nodes.managed),
            taken: nodes.not_ready_or_leaving,
            until: rule.window.as_ref().and_then(|window| window.end(now)),
        })
    }
}

impl BudgetLimit {
    /// How many more nodes may be disturbed now: [`u32::MAX`] where nothing limits it, 0 where a budget cannot be read.
    pub const fn allowed(&self) -> u32 {
        match self {
            Self::Unlimited => u32::MAX,
            Self::Tightest(budget) => budget.nodes.saturating_sub(budget.taken),
            Self::Unreadable(_) => 0,
        }
    }
}

impl fmt::Display for BudgetLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("no budget counts"),
            Self::Tightest(budget) => budget.fmt(f),
            Self::Unreadable(error) => write!(f, "nothing is allowed: {error}"),
        }
    }
}

impl fmt::Display for ActiveBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spec.disruption.budgets[{}] allows {}", self.index, self.nodes)?;
        if let Some(until) = self.until {
            write!(f, " until {until}")?;
        }
        write!(f, ", {} taken", self.taken)
    }
}

/// A budget that was read.
#[derive(Clone, Debug)]
struct Rule {
    nodes: IntOrPercent,
    /// None for every reason.
    reasons: Option<Vec<DisruptionReason>>,
    /// None if it always counts.
    window: Option<Window>,
}

impl Rule {
    fn read(budget: &Budget) -> Result<Self, BudgetFault> {
        let nodes = budget.node_limit()?;
        let window = match budget.window()? {
            Some((schedule, duration)) => Some(Window { schedule: schedule.parse()?, duration }),
            None => None,
        };
        Ok(Self { nodes, reasons: budget.reasons.clone(), window })
    }

    fn is_for(&self, reason: DisruptionReason) -> bool {
        self.reasons.as_ref().is_none_or(|reasons| reasons.contains(&reason))
    }

    fn is_active(&self, now: Timestamp) -> bool {
        self.window.as_ref().is_none_or(|window| window.is_open(now))
    }
}

/// When a budget counts.
#[derive(Clone, Debug)]
struct Window {
    schedule: Schedule,
    duration: Duration,
}

impl Window {
    fn is_open(&self, now: Timestamp) -> bool {
        self.schedule.next_after(now - self.duration).is_none_or(|opened| opened <= now)
    }

    /// When the window that is open at `now` closes, together with those that open before it does.
    fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let mut opened = self.schedule.next_after(now - self.duration)?;
        for _ in 0..MAX_JOINED_WINDOWS {
            match self.schedule.next_after(opened) {
                Some(next) if next <= opened + self.duration => opened = next,
                _ => return Some(opened + self.duration),
            }
        }
        None
    }
}
