use karpenter_core::Price;

/// Why a certificate does not prove what it claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The bound is higher than what the proof comes to.
    #[error("it claims {} dollars an hour and proves {}", claimed.dollars_per_hour(), proven.dollars_per_hour())]
    ClaimsTooMuch {
        /// The bound that it claims.
        claimed: Price,
        /// What it proves.
        proven: Price,
    },
    /// There is no such pool, or no node can be made of it.
    #[error("node pool {node_pool}: there is none, or no node can be made of it")]
    UnknownPool {
        /// The name.
        node_pool: String,
    },
    /// The catalog of a pool has no such type.
    #[error("node pool {node_pool}: instance type {instance_type}: the catalog has none")]
    UnknownType {
        /// The pool.
        node_pool: String,
        /// The name.
        instance_type: String,
    },
    /// A type of a pool is named twice.
    #[error("node pool {node_pool}: instance type {instance_type}: it is named twice")]
    RepeatedType {
        /// The pool.
        node_pool: String,
        /// The type.
        instance_type: String,
    },
    /// There is no such place, or it takes no pods.
    #[error("place {place}: there is none, or it takes no pods")]
    UnknownPlace {
        /// The name.
        place: String,
    },
    /// No offering draws on such a reservation.
    #[error("reservation {reservation}: no offering draws on it")]
    UnknownReservation {
        /// The value of the label that would name it.
        reservation: String,
    },
    /// No placed pod asks for the resource.
    #[error("{of}: resource {resource}: no pod asks for it")]
    UnknownResource {
        /// What has a share of it.
        of: String,
        /// The name.
        resource: String,
    },
    /// The shares of a price are more than the whole.
    #[error("{of}: the shares add up to {sum_ppm} of 1000000")]
    TooLargeShares {
        /// Whose shares.
        of: String,
        /// Their sum, in millionths.
        sum_ppm: u64,
    },
    /// A worth is below zero.
    #[error("{of}: the worth is {nano_dollars_per_hour} billionths of a dollar an hour, below zero")]
    NegativeWorth {
        /// Whose worth.
        of: String,
        /// The worth, in billionths of a dollar an hour.
        nano_dollars_per_hour: i64,
    },
}
