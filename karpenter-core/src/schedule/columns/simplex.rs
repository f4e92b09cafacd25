//! The linear program of covering demands with columns, as cheaply as can be: the primal simplex method on a dense
//! inverse of the basis (Dantzig, "Linear Programming and Extensions", 1963).

/// What counts as nothing beside numbers around one.
const EPSILON: f64 = 1e-9;

/// Whole numbers of some rows at a price.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) cost: f64,
    /// What it brings to each row, by index.
    pub(super) counts: Vec<(usize, f64)>,
}

/// A basis: as many columns as there are rows, and how much there is of each.
pub(super) struct Simplex {
    columns: Vec<Column>,
    /// The column of each row of the inverse; what it brings beyond a demand is numbered from `usize::MAX` down.
    basis: Vec<usize>,
    /// Row by row.
    inverse: Vec<f64>,
    amounts: Vec<f64>,
    /// What one more of each row costs.
    duals: Vec<f64>,
}

impl Simplex {
    /// Starts with one column for each demand, that brings it and nothing else.
    pub(super) fn new(demands: &[f64], columns: Vec<Column>) -> Self {
        let rows = demands.len();
        let mut inverse = vec![0.0; rows * rows];
        let (mut amounts, mut duals) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for (row, (column, demand)) in columns.iter().zip(demands).enumerate() {
            let count = column.counts[0].1;
            inverse[row * rows + row] = 1.0 / count;
            amounts.push(demand / count);
            duals.push(column.cost / count);
        }
        Self { columns, basis: (0..rows).collect(), inverse, amounts, duals }
    }

    pub(super) fn add(&mut self, column: Column) {
        self.columns.push(column);
    }

    pub(super) fn duals(&self) -> &[f64] {
        &self.duals
    }

    #[cfg(test)]
    fn cost(&self) -> f64 {
        self.solution().map(|(column, amount)| self.columns[column].cost * amount).sum()
    }

    /// How much there is of which columns.
    pub(super) fn solution(&self) -> impl Iterator<Item = (usize, f64)> {
        let of_columns = self.basis.iter().zip(&self.amounts).filter(|(column, _)| **column < self.columns.len());
        of_columns.map(|(&column, &amount)| (column, amount.max(0.0)))
    }

    /// Brings columns into the basis until none makes it cheaper, in at most so many steps, and says how many it took.
    pub(super) fn optimize(&mut self, max_steps: usize) -> usize {
        for step in 0..max_steps {
            let Some(entering) = self.entering() else { return step };
            let direction = self.direction(entering);
            let Some(leaving) = self.leaving(&direction) else { return step };
            self.pivot(entering, leaving, &direction);
        }
        max_steps
    }

    /// The column that saves most beside its cost, by its number.
    fn entering(&self) -> Option<usize> {
        let mut best = (EPSILON, None);
        for (index, column) in self.columns.iter().enumerate() {
            let worth: f64 = column.counts.iter().map(|&(row, count)| self.duals[row] * count).sum();
            let saved = (worth - column.cost) / column.cost.max(EPSILON);
            if saved > best.0 {
                best = (saved, Some(index));
            }
        }
        for (row, &dual) in self.duals.iter().enumerate() {
            if -dual > best.0 {
                best = (-dual, Some(usize::MAX - row));
            }
        }
        best.1
    }

    /// How much of each column of the basis one of another column takes the place of.
    fn direction(&self, entering: usize) -> Vec<f64> {
        let rows = self.basis.len();
        let surplus;
        let counts = if let Some(column) = self.columns.get(entering) {
            column.counts.as_slice()
        } else {
            surplus = [(usize::MAX - entering, -1.0)];
            &surplus
        };
        let of_row = |line: &[f64]| counts.iter().map(|&(row, count)| line[row] * count).sum();
        self.inverse.chunks_exact(rows).map(of_row).collect()
    }

    /// The column of the basis that is used up first; of several the one that is replaced most firmly.
    fn leaving(&self, direction: &[f64]) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (index, (&amount, &step)) in
            self.amounts.iter().zip(direction).enumerate().filter(|(_, (_, s))| **s > EPSILON)
        {
            let ratio = amount.max(0.0) / step;
            let is_better = best
                .is_none_or(|(least, old)| ratio < least - EPSILON || ratio < least + EPSILON && step > direction[old]);
            if is_better {
                best = Some((ratio, index));
            }
        }
        best.map(|(_, index)| index)
    }

    fn pivot(&mut self, entering: usize, leaving: usize, direction: &[f64]) {
        let rows = self.basis.len();
        let step = direction[leaving];
        let line: Vec<f64> =
            self.inverse[leaving * rows..(leaving + 1) * rows].iter().map(|value| value / step).collect();
        let amount = self.amounts[leaving].max(0.0) / step;
        let saved = self.saved(entering);
        for (index, &share) in direction.iter().enumerate() {
            let target = &mut self.inverse[index * rows..(index + 1) * rows];
            if index == leaving {
                target.copy_from_slice(&line);
                self.amounts[index] = amount;
            } else if share.abs() > EPSILON * EPSILON {
                target.iter_mut().zip(&line).for_each(|(value, line)| *value -= share * line);
                self.amounts[index] -= share * amount;
            }
        }
        self.duals.iter_mut().zip(&line).for_each(|(dual, line)| *dual -= saved * line);
        self.basis[leaving] = entering;
    }

    /// What one of a column saves beyond its cost.
    fn saved(&self, entering: usize) -> f64 {
        match self.columns.get(entering) {
            Some(column) => {
                column.counts.iter().map(|&(row, count)| self.duals[row] * count).sum::<f64>() - column.cost
            }
            None => -self.duals[usize::MAX - entering],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_cover() {
        // Halves of each other: two rows, a column for each, and one with both that is cheaper than the two.
        let column = |cost, counts: &[(usize, f64)]| Column { cost, counts: counts.to_vec() };
        let mut simplex = Simplex::new(&[6.0, 4.0], vec![column(2.0, &[(0, 2.0)]), column(3.0, &[(1, 1.0)])]);
        assert!((simplex.cost() - 18.0).abs() < 1e-9);
        simplex.add(column(3.0, &[(0, 1.0), (1, 1.0)]));
        simplex.optimize(100);
        // Four with both, and one of the first for the two that are left.
        assert!((simplex.cost() - 14.0).abs() < 1e-9, "{}", simplex.cost());
        assert!((simplex.duals()[0] - 1.0).abs() < 1e-9 && (simplex.duals()[1] - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_brought_beyond_a_demand_is_worth_nothing() {
        let column = |cost, counts: &[(usize, f64)]| Column { cost, counts: counts.to_vec() };
        let mut simplex = Simplex::new(&[2.0, 10.0], vec![column(1.0, &[(0, 1.0)]), column(1.0, &[(1, 1.0)])]);
        simplex.add(column(1.0, &[(0, 5.0), (1, 5.0)]));
        simplex.optimize(100);
        assert!((simplex.cost() - 2.0).abs() < 1e-9);
        assert!(simplex.duals()[0].abs() < 1e-9);
    }
}
