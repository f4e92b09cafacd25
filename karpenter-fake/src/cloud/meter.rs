//! What machines cost, to the millisecond and without rounding.

use std::{fmt, iter::Sum, ops::AddAssign, time::Duration};

use karpenter_core::{Price, Timestamp};

const MILLIS_PER_HOUR: i128 = 3_600_000;
/// Billionths of a dollar in a millionth.
const NANO_PER_MICRO: i128 = 1_000;

/// Counts what machines cost as time goes by.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    since: Timestamp,
    /// What all machines cost now.
    nano_dollars_per_hour: i128,
    machines: i128,
    bill: Bill,
}

/// What machines came to: from when each was bought until it was gone, at the price of each moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bill {
    /// Billionths of a dollar an hour, times milliseconds.
    exact: i128,
    machine_millis: i128,
}

impl Bill {
    /// In millionths of a dollar, rounded down.
    pub fn micro_dollars(&self) -> i64 {
        i64::try_from(self.exact / (MILLIS_PER_HOUR * NANO_PER_MICRO)).unwrap_or(i64::MAX)
    }

    /// For how many seconds there were machines, all added up, rounded down.
    pub fn machine_seconds(&self) -> i64 {
        i64::try_from(self.machine_millis / 1000).unwrap_or(i64::MAX)
    }
}

impl Bill {
    /// What one machine came to in this time at one price.
    pub(super) fn of(price: Price, time: Duration) -> Self {
        let millis = i128::try_from(time.as_millis()).unwrap_or(i128::MAX);
        Self { exact: nano_dollars(price) * millis, machine_millis: millis }
    }
}

impl AddAssign for Bill {
    fn add_assign(&mut self, other: Self) {
        self.exact += other.exact;
        self.machine_millis += other.machine_millis;
    }
}

impl Sum for Bill {
    fn sum<I: Iterator<Item = Self>>(bills: I) -> Self {
        bills.fold(Self::default(), |mut sum, bill| {
            sum += bill;
            sum
        })
    }
}

impl fmt::Display for Bill {
    /// In dollars and cents, rounded to the nearest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = (self.micro_dollars() + 5_000) / 10_000;
        write!(f, "${}.{:02}", cents / 100, cents % 100)
    }
}

impl Meter {
    pub(super) fn start(&mut self, at: Timestamp, price: Price) {
        self.settle(at);
        self.machines += 1;
        self.nano_dollars_per_hour += nano_dollars(price);
    }

    pub(super) fn stop(&mut self, at: Timestamp, price: Price) {
        self.settle(at);
        self.machines -= 1;
        self.nano_dollars_per_hour -= nano_dollars(price);
    }

    pub(super) fn reprice(&mut self, at: Timestamp, from: Price, to: Price) {
        self.settle(at);
        self.nano_dollars_per_hour += nano_dollars(to) - nano_dollars(from);
    }

    pub(super) fn read(&self, now: Timestamp) -> Bill {
        let mut meter = self.clone();
        meter.settle(now);
        meter.bill
    }

    fn settle(&mut self, at: Timestamp) {
        let millis = i128::try_from(at.since(self.since).as_millis()).unwrap_or(i128::MAX);
        self.bill.exact += self.nano_dollars_per_hour * millis;
        self.bill.machine_millis += self.machines * millis;
        self.since = self.since.max(at);
    }
}

fn nano_dollars(price: Price) -> i128 {
    i128::from(price.nano_dollars_per_hour())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn dollars(dollars: f64) -> Price {
        Price::per_hour(dollars).expect("a price")
    }

    #[test]
    fn machines_cost_from_start_to_stop_at_the_price_of_the_moment() {
        let mut meter = Meter::default();
        meter.start(at(0), dollars(0.36));
        assert_eq!(meter.read(at(1)).micro_dollars(), 100);
        meter.start(at(100), dollars(3.6));
        meter.reprice(at(200), dollars(0.36), dollars(0.72));
        meter.stop(at(300), dollars(3.6));
        // 200 s at 0.36, 100 s at 0.72, and 200 s at 3.6 dollars an hour.
        assert_eq!(meter.read(at(300)).micro_dollars(), 20_000 + 20_000 + 200_000);
        assert_eq!(meter.read(at(300)).machine_seconds(), 500);
        assert_eq!(meter.read(at(300)).to_string(), "$0.24");
    }
}
