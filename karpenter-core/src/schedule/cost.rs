//! What the search takes a node to cost, as opposed to its price.

use super::problem::Base;

/// What a node costs at least, in dollars an hour.
const LEAST_COST: f64 = 1e-9;

/// The highest amount: more than nodes cost, and little enough that sums are finite and bills still count beside it.
const MOST: f64 = 1e9;

impl Base<'_> {
    /// What a node bought by a row of a pool costs, in dollars an hour: its expected price, and what every node costs. Never quite
    /// nothing, as what pods are worth is measured by it.
    pub(super) fn node_cost(&self, pool: usize, row: usize) -> f64 {
        (self.expected_price(pool, row) + amount(self.options.node_cost_per_hour)).max(LEAST_COST)
    }

    /// The price of a row of a pool in dollars an hour, with what interruptions are likely to cost.
    pub(super) fn expected_price(&self, pool: usize, row: usize) -> f64 {
        let price = self.pools[pool].table().rows()[row].price;
        price.dollars_per_hour() + self.interruption(pool, row)
    }

    /// What interruptions of a node bought by a row of a pool are likely to cost, in dollars an hour.
    pub(super) fn interruption(&self, pool: usize, row: usize) -> f64 {
        self.pools[pool].table().rows()[row].interruption * amount(self.options.interruption_cost)
    }
}

/// An amount of money that an option names, or a multiple of one.
pub(super) fn amount(number: f64) -> f64 {
    if number.is_finite() { number.clamp(0.0, MOST) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_that_make_no_sense_are_nothing() {
        let amounts = [0.5, 0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX].map(amount);
        assert_eq!(amounts.map(f64::to_bits), [0.5, 0.0, 0.0, 0.0, 0.0, MOST].map(f64::to_bits));
    }
}
