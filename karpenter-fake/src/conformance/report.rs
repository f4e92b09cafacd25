use std::fmt;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Check {
    /// The catalog can be had.
    Catalog,
    /// The catalog has types.
    CatalogIsNotEmpty,
    /// Every offering has one value of each of zone and capacity type, where the catalog names them.
    OfferingsAreNamed,
    /// Nothing: a machine may cost nothing.
    #[deprecated(note = "a machine may cost nothing, and every price is one; this is in no report")]
    OfferingsHavePrices,
    /// Every type has CPU, memory and room for pods.
    TypesHaveResources,
    /// Something can be bought for the pool.
    CatalogHasOfferings,
    /// There is no machine of a name that nobody gave.
    UnknownMachineIsNone,
    /// To delete what there never was is [`Deletion::Gone`](karpenter_core::provider::Deletion::Gone).
    UnknownMachineIsGone,
    /// A claim that nothing meets is refused as such.
    ImpossibleClaimIsRefused,
    /// A claim that was refused leaves no machine.
    RefusedClaimLeavesNothing,
    /// What has no capacity is named: at least one offering, all of the catalog, and allowed by the claim. Only looked at where
    /// there is no capacity during the run.
    RefusalNamesOfferings,
    /// A claim gets a machine.
    CreateBuys,
    /// A claim gets the same machine again.
    CreateIsIdempotent,
    /// A claim that asks twice at the same time gets one machine.
    SimultaneousCreatesBuyOnce,
    /// Two claims get two machines.
    ClaimsGetMachinesOfTheirOwn,
    /// A machine has an id.
    MachineHasId,
    /// A machine says for which claim it was made.
    MachineNamesItsClaim,
    /// The keys and values of a machine's labels are such as Kubernetes takes.
    MachineHasValidLabels,
    /// A machine has the labels that its offering promises: instance type, zone and capacity type.
    MachineIsLabelled,
    /// A machine is what its claim allows.
    MachineMeetsItsClaim,
    /// A machine has the resources that the catalog promises of its type.
    MachineHasWhatWasPromised,
    /// A machine has all labels that the catalog promises of its type and of one of its offerings, with values that are promised.
    MachineHasPromisedLabels,
    /// A machine has at least as much of everything as pods will have.
    CapacityCoversAllocatable,
    /// A machine that was bought is found by its name.
    GetFinds,
    /// A machine that was bought is listed.
    ListHas,
    /// No machine is listed twice.
    ListHasEachOnce,
    /// A machine that is found or listed has the instance type, zone and capacity type that it was bought with.
    FoundMachineIsLabelled,
    /// A machine that was bought just now has not drifted.
    NewMachineIsNotDrifted,
    /// No repair policy gives up nodes for being ready.
    ReadyNodesStay,
    /// Whoever reads on reads no event again, and comes to an end.
    EventsAreToldOnce,
    /// A machine can be deleted.
    DeleteStarts,
    /// A machine can be deleted twice.
    DeleteIsRepeatable,
    /// A machine that was deleted and is not gone is listed. Not looked at where it is gone at once.
    ListHasEndingMachines,
    /// A machine that was deleted says so before it is gone. Not looked at where it is gone at once.
    DeletedMachineIsTerminating,
    /// A machine that is gone is found no more.
    GetForgets,
    /// A machine that is gone is listed no more.
    ListForgets,
    /// To delete what is gone is [`Deletion::Gone`](karpenter_core::provider::Deletion::Gone).
    DeletedMachineIsGone,
}

/// What came of a [`Check`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The check.
    pub check: Check,
    /// How the provider failed, naming it, the method and the values; `None` if it passed.
    pub failure: Option<String>,
}

/// What came of all checks, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a provider may have failed"]
pub struct Report {
    provider: String,
    verdicts: Vec<Verdict>,
}

impl Report {
    pub(super) fn new(provider: &str) -> Self {
        Self { provider: provider.to_owned(), verdicts: Vec::new() }
    }

    /// Notes a check of a method; without a problem it is passed. Of several failures of one check the first counts.
    pub(super) fn judge(&mut self, check: Check, method: &str, problem: Option<String>) {
        let failure = problem.map(|problem| format!("{}: {method}: {problem}", self.provider));
        match self.verdicts.iter_mut().find(|v| v.check == check) {
            Some(verdict) => verdict.failure = verdict.failure.take().or(failure),
            None => self.verdicts.push(Verdict { check, failure }),
        }
    }

    /// All checks that were made.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Whether every check was passed.
    pub fn is_passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|v| v.failure.is_some())
    }
}

impl fmt::Display for Report {
    /// One line for the whole, and one for each failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, failed) = (self.verdicts.len(), self.failures().count());
        write!(f, "{}: {} of {all} checks passed", self.provider, all - failed)?;
        for verdict in self.failures() {
            write!(f, "\n  {:?}: {}", verdict.check, verdict.failure.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }
}
