//! Pods that have no place and take one from others, who wait for their company in vain.

use std::collections::BTreeSet;

use super::{
    Plan,
    problem::{Course, Problem},
    topology::Lessons,
};

impl Problem<'_> {
    /// The same problem without the classes that a plan leaves altogether and that others are near to which it leaves as well.
    ///
    /// For the kube-scheduler pods that have no place are nobody's company: whoever wants to be near to its like begins alone.
    pub(super) fn without_spoilers(&self, plan: &Plan) -> Option<Self> {
        let spoilers = self.spoilers(plan);
        (!spoilers.is_empty()).then(|| {
            let mut course = Course { aside: spoilers, ..self.course.clone() };
            course.aside.extend(&self.course.aside);
            Self::new(self.base.clone(), &Lessons::default(), course)
        })
    }

    fn spoilers(&self, plan: &Plan) -> BTreeSet<usize> {
        if plan.unplaced.is_empty() {
            return BTreeSet::new();
        }
        let classes = &self.base.classes;
        let left = self.left_by_class(plan);
        let is_open = |class: &usize| left[*class] > 0 && !self.course.aside.contains(class);
        let open: Vec<usize> = (0..left.len()).filter(is_open).collect();
        let seeks = |class: usize, other: usize| {
            let (near, traits) = (&classes.neighbourhood(class).hard().near, classes.neighbourhood(other).selected_by);
            class != other && !near.is_empty() && classes.selectors.all_select(near, traits)
        };
        let is_sought = |class: usize| open.iter().any(|&other| seeks(other, class));
        let has_sought = |class: usize| open.iter().any(|&other| seeks(class, other));
        let is_left_whole = |class: usize| left[class] == classes.list[class].pods.len();
        open.iter().copied().filter(|&c| is_left_whole(c) && is_sought(c) && !has_sought(c)).collect()
    }
}
