//! How many nodes of a pool may be disturbed at once.

use karpenter_core::{
    Catalogs, InstanceType, Planner, Price, Quantity, Snapshot, Timestamp,
    api::{DisruptionReason, NodePool, Pod},
    disrupt::{BudgetFault, BudgetLimit, NodeCounts, PoolBudgets, ScheduleError},
};
use proptest::prelude::*;

const REASONS: [DisruptionReason; 3] =
    [DisruptionReason::Underutilized, DisruptionReason::Empty, DisruptionReason::Drifted];
/// A Thursday.
const NOW: &str = "2000-06-15T12:30:30Z";

fn time(text: &str) -> Timestamp {
    text.parse().expect(text)
}

/// A pool whose budgets are this JSON.
fn pool(budgets: &str) -> NodePool {
    let mut pool = NodePool::named("general");
    pool.spec.disruption.budgets = serde_json::from_str(budgets).expect(budgets);
    pool
}

fn limit(budgets: &str, reason: DisruptionReason, managed: u32, now: &str) -> BudgetLimit {
    let nodes = NodeCounts { managed, not_ready_or_leaving: 0 };
    PoolBudgets::of(&pool(budgets)).limit(reason, nodes, time(now))
}

fn allowed(budgets: &str, reason: DisruptionReason, managed: u32) -> u32 {
    limit(budgets, reason, managed, NOW).allowed()
}

#[test]
fn percentages_are_rounded_up() {
    for (nodes, managed, expected) in [
        ("10%", 0, 0),
        ("10%", 1, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("5%", 10, 1),
        ("0%", 100, 0),
        ("1%", 100, 1),
        ("1%", 101, 2),
        ("100%", 7, 7),
        ("100%", u32::MAX, u32::MAX),
        ("0", 100, 0),
        ("3", 100, 3),
        ("200", 100, 200),
    ] {
        let budgets = format!(r#"[{{"nodes":"{nodes}"}}]"#);
        assert_eq!(allowed(&budgets, DisruptionReason::Empty, managed), expected, "{nodes} of {managed}");
    }
    let default = PoolBudgets::of(&NodePool::named("p"));
    let nodes = NodeCounts { managed: 21, not_ready_or_leaving: 0 };
    assert_eq!(default.limit(DisruptionReason::Empty, nodes, time(NOW)).allowed(), 3);
}

#[test]
fn the_tightest_budget_for_the_reason_counts() {
    let rest = r#"{"nodes":"10"},{"nodes":"100%"},{"nodes":"15","reasons":["Drifted","Underutilized"]},
        {"nodes":"5","reasons":["Drifted"]},
        {"nodes":"0","schedule":"@weekly","duration":"1h"},{"nodes":"0","reasons":[]}"#;
    for (extra, expected) in [
        ("", [10, 10, 5]),
        (r#",{"nodes":"4","reasons":["Empty"]}"#, [10, 4, 5]),
        (r#",{"nodes":"3"}"#, [3, 3, 3]),
        (r#",{"nodes":"0","schedule":"* * * * *","duration":"1h"}"#, [0, 0, 0]),
        (r#",{"nodes":"0","reasons":null}"#, [0, 0, 0]),
    ] {
        let budgets = format!("[{rest}{extra}]");
        assert_eq!(REASONS.map(|reason| allowed(&budgets, reason, 100)), expected, "{extra}");
    }
}

#[test]
fn without_a_budget_that_counts_nothing_is_limited() {
    for budgets in [
        "[]",
        r#"[{"nodes":"0","reasons":[]}]"#,
        r#"[{"nodes":"0","reasons":["Empty"]}]"#,
        r#"[{"nodes":"0","schedule":"@yearly","duration":"1h"}]"#,
    ] {
        let limit = limit(budgets, DisruptionReason::Drifted, 100, NOW);
        assert_eq!((limit.allowed(), &limit), (u32::MAX, &BudgetLimit::Unlimited), "{budgets}");
    }
}

#[test]
fn a_budget_counts_from_its_schedule_on() {
    for (schedule, duration, now, is_active) in [
        ("* * * * *", "1h", NOW, true),
        ("@yearly", "1h", NOW, false),
        ("@yearly", "24h", "1000-01-01T12:00:00Z", true),
        ("@daily", "48h", "2024-01-07T00:00:00Z", true),
        ("30 6 * * SUN", "6h", "2024-01-07T00:00:00Z", false),
        ("30 6 * * SUN", "6h", "2024-01-07T06:29:59.999Z", false),
        ("30 6 * * SUN", "6h", "2024-01-07T06:30:00Z", true),
        ("30 6 * * SUN", "6h", "2024-01-07T12:29:59.999Z", true),
        ("30 6 * * SUN", "6h", "2024-01-07T12:30:00Z", false),
        // In UTC, whatever zone the time was written in.
        ("@daily", "30m", "2000-05-31T00:10:00+01:00", false),
        ("@daily", "30m", "2000-05-31T01:10:00+01:00", true),
        ("* * * * *", "0m", "2000-06-15T12:30:00Z", false),
        ("* * * * *", "1h0m0s", NOW, true),
        // There is no such day: as in Karpenter, the budget always counts.
        ("0 0 30 2 *", "1m", NOW, true),
    ] {
        let budgets = format!(r#"[{{"nodes":"1","schedule":"{schedule}","duration":"{duration}"}}]"#);
        let expected = if is_active { 1 } else { u32::MAX };
        let found = limit(&budgets, DisruptionReason::Empty, 9, now).allowed();
        assert_eq!(found, expected, "{schedule} for {duration} at {now}");
    }
}

#[test]
fn nodes_that_are_away_are_taken_off() {
    for (nodes, managed, away, expected) in [("5", 9, 2, 3), ("5", 9, 5, 0), ("5", 9, 9, 0), ("50%", 9, 1, 4)] {
        let budgets = PoolBudgets::of(&pool(&format!(r#"[{{"nodes":"{nodes}"}}]"#)));
        let counts = NodeCounts { managed, not_ready_or_leaving: away };
        assert_eq!(budgets.limit(DisruptionReason::Empty, counts, time(NOW)).allowed(), expected, "{nodes}, {away}");
    }
}

#[test]
fn the_limit_says_which_budget_it_is_and_until_when() {
    let hours = r#"[{"nodes":"2"},{"nodes":"1","schedule":"0 9-17 * * 1-5","duration":"1h"},{"nodes":"1"}]"#;
    let minutes = r#"[{"nodes":"1","schedule":"* * * * *","duration":"1h"}]"#;
    let gaps = r#"[{"nodes":"20%","schedule":"0 12,14 * * *","duration":"90m"}]"#;
    for (budgets, index, until, text) in [
        (
            hours,
            1,
            Some("2000-06-15T18:00:00Z"),
            "spec.disruption.budgets[1] allows 1 until 2000-06-15T18:00:00Z, 1 taken",
        ),
        (minutes, 0, None, "spec.disruption.budgets[0] allows 1, 1 taken"),
        (
            gaps,
            0,
            Some("2000-06-15T13:30:00Z"),
            "spec.disruption.budgets[0] allows 2 until 2000-06-15T13:30:00Z, 1 taken",
        ),
    ] {
        let counts = NodeCounts { managed: 9, not_ready_or_leaving: 1 };
        let limit = PoolBudgets::of(&pool(budgets)).limit(DisruptionReason::Drifted, counts, time(NOW));
        assert_eq!(limit.to_string(), text);
        let BudgetLimit::Tightest(budget) = limit else { panic!("{budgets}: {limit}") };
        assert_eq!((budget.index, budget.taken, budget.until), (index, 1, until.map(time)), "{budgets}");
    }
}

/// Budgets of which one cannot be read, its place, its field and what is said of it.
const UNREADABLE: [(&str, usize, &str, &str); 6] = [
    (r#"[{},{"schedule":"@wrongly","duration":"1h"}]"#, 1, "schedule", "expected @yearly, @annually, "),
    (r#"[{"schedule":"0 0 * * tue-mon","duration":"6h"}]"#, 0, "schedule", r#"day of week "tue-mon": 2 comes after 1"#),
    (r#"[{"nodes":"1000a%"}]"#, 0, "nodes", "expected a whole number or a percentage up to 100%"),
    (
        r#"[{},{},{"schedule":"@daily","duration":"1d","reasons":["Empty"]}]"#,
        2,
        "duration",
        "expected hours and minutes",
    ),
    (r#"[{"schedule":"@daily"}]"#, 0, "duration", r#"missing beside the schedule "@daily""#),
    (r#"[{"duration":"1h","reasons":[]}]"#, 0, "schedule", r#"missing beside the duration "1h""#),
];

#[test]
fn a_budget_that_cannot_be_read_allows_nothing_for_any_reason() {
    for (json, index, field, message) in UNREADABLE {
        let budgets = PoolBudgets::of(&pool(json));
        let error = budgets.unreadable().expect(json);
        assert_eq!((error.index, error.fault.field()), (index, field), "{json}");
        let text = format!("spec.disruption.budgets[{index}].{field}: {message}");
        assert!(error.to_string().starts_with(&text), "{error}");
        for reason in REASONS {
            let limit = budgets.limit(reason, NodeCounts { managed: 100, not_ready_or_leaving: 0 }, time(NOW));
            assert_eq!((limit.allowed(), &limit), (0, &BudgetLimit::Unreadable(error.clone())), "{json}");
        }
    }
    let zone = PoolBudgets::of(&pool(r#"[{"schedule":"TZ=UTC @daily","duration":"1h"}]"#));
    let fault = zone.unreadable().map(|error| &error.fault);
    assert!(matches!(fault, Some(BudgetFault::Schedule(ScheduleError::TimeZone { .. }))), "{fault:?}");
    assert_eq!(PoolBudgets::of(&NodePool::named("p")).unreadable(), None);
}

#[test]
fn nodes_are_made_of_a_pool_whose_budgets_cannot_be_read() {
    let capacity = [("cpu", Quantity::from_units(4)), ("memory", Quantity::from_bytes(16 << 30))];
    let machine = InstanceType::named("m", capacity).offering("on-demand", "a", Price::per_hour(1.0).expect("valid"));
    for (json, ..) in UNREADABLE {
        let snapshot = Snapshot::builder().pool(pool(json)).pods(Pod::named("p").cpu("1")).build().expect("valid");
        let catalogs = Catalogs::shared(vec![machine.clone()], snapshot.pools()).expect("valid");
        let plan = Planner::default().plan(&snapshot, &catalogs);
        assert_eq!((plan.claims().len(), plan.unplaced().len()), (1, 0), "{json}");
    }
}

proptest! {
    /// Up to the time that is told the budget counts, and from then on it does not.
    #[test]
    fn a_budget_counts_until_the_time_that_is_told(
        (minute, hour, weekday) in (0..60_u8, 0..24_u8, 0..7_u8),
        is_hourly in any::<bool>(),
        minutes in 1..3000_u32,
        millis in 0..4_400_000_000_000_i64,
        percent in 0..=100_i64,
    ) {
        let hour = if is_hourly { "*".to_owned() } else { hour.to_string() };
        let schedule = format!("{minute} {hour} * * {weekday}");
        let budgets = pool(&format!(r#"[{{"nodes":"1","schedule":"{schedule}","duration":"{minutes}m"}}]"#));
        let budgets = PoolBudgets::of(&budgets);
        let at = |millis| {
            budgets.limit(DisruptionReason::Empty, NodeCounts::default(), Timestamp::from_millis(millis))
        };
        if let BudgetLimit::Tightest(budget) = at(millis) {
            let until = budget.until.expect("a week has gaps").as_millis();
            prop_assert!(until > millis);
            let between = millis + (until - 1 - millis) * percent / 100;
            prop_assert!(matches!(at(between), BudgetLimit::Tightest(_)));
            prop_assert!(matches!(at(until - 1), BudgetLimit::Tightest(_)));
            prop_assert_eq!(at(until), BudgetLimit::Unlimited);
        }
    }
}
