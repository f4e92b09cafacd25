//! From charges to whole numbers, and what these prove.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{
    Certificate, PoolShares, Worth,
    ascent::Charges,
    kinds::{Kind, Origin, ReservedRow, room_of},
    program::{Group, Program, fitting},
    whole,
};
use crate::{
    Price,
    schedule::{amounts::Amounts, problem::Base},
};

/// All of a price, in the unit of shares.
const WHOLE: f64 = 1e6;
/// What is taken of a number that was worked out in floats, so that it is surely no more than the exact one.
const SURE: f64 = 1.0 - 1e-12;
/// Larger products are not worked out; the pod pays nothing then.
const TOO_LARGE: f64 = 1e37;

/// What pods pay on nodes of one kind.
struct Till {
    /// What a node costs by constraint; infinite where such pods may not be.
    prices: Vec<f64>,
    /// What a request pays for each resource on a node that costs 1, by request and resource.
    terms: Vec<f64>,
    /// How many terms a request has.
    width: usize,
    /// The sum of the terms by request; infinite where it does not fit.
    parts: Vec<f64>,
}

impl Till {
    fn new(room: &[i64], fits: &[bool], prices: Vec<f64>, shares: &[u32], requests: &[Amounts]) -> Self {
        let most = prices.iter().copied().filter(|price| price.is_finite()).fold(0.0, f64::max);
        let term = |((&request, &room), &share): ((&i64, &i64), &u32)| {
            let portion = f64::from(share) * request as f64;
            if room > 0 && most * portion <= TOO_LARGE { portion / (room as f64 * WHOLE) } else { 0.0 }
        };
        let (mut terms, mut parts) = (Vec::new(), Vec::new());
        for (request, fits) in requests.iter().zip(fits) {
            let first = terms.len();
            terms.extend(request.iter().zip(room).zip(shares).map(term));
            parts.push(if *fits { terms[first..].iter().sum() } else { f64::INFINITY });
        }
        Self { prices, terms, width: shares.len(), parts }
    }

    /// What a pod pays, rounded down; no more than it does in whole numbers.
    fn pay(&self, constraint: usize, request: usize) -> f64 {
        let price = self.prices[constraint];
        self.terms[request * self.width..][..self.width].iter().map(|term| (price * term * SURE).floor()).sum()
    }
}

/// A certificate in the making.
pub(super) struct Ledger<'b, 'a> {
    base: &'b Base<'a>,
    /// The shares of each type of each pool, in millionths.
    pools: BTreeMap<(usize, usize), Vec<u32>>,
    /// What all pods pay at least beyond what places and reservations are worth, in billionths of a dollar an hour.
    bound: i128,
    out: Certificate,
}

impl<'b, 'a> Ledger<'b, 'a> {
    pub(super) fn new(base: &'b Base<'a>) -> Self {
        Self { base, pools: BTreeMap::new(), bound: 0, out: Certificate::default() }
    }

    /// Takes in what nodes charge the pods of a program.
    pub(super) fn enter(&mut self, program: &Program, charges: &Charges) {
        let mut seller = 0..;
        let sellers: Vec<Option<usize>> =
            program.kinds.iter().map(|kind| kind.beaten_by.is_none().then(|| seller.next()).flatten()).collect();
        // The shares of a kind that is beaten are those of the one that beats it.
        let shares = |kind: usize| {
            let of = program.kinds[kind].beaten_by.unwrap_or(kind);
            sellers[of].map_or(&[][..], |seller| &charges.shares[seller])
        };
        let mut page = Page { ledger: self, program, tills: Vec::new(), worth: 0 };
        for (index, kind) in program.kinds.iter().enumerate() {
            let worth = sellers[index].map_or(0.0, |seller| charges.worths[seller]);
            match &kind.origin {
                Origin::Pool { pool, variant } => page.enter_type(*pool, *variant, shares(index)),
                Origin::Reservation { reservation, rows } => {
                    page.enter_reservation(*reservation, rows, shares(index), worth);
                }
                Origin::Places(places) => page.enter_places(kind, places, shares(index), worth),
            }
        }
        page.enter_prices();
        self.bound += page.bound();
    }

    /// The certificate, which lists the types of each pool, those with equal shares together.
    pub(super) fn finish(mut self) -> Certificate {
        let bound = i64::try_from(self.bound.max(0)).unwrap_or(i64::MAX);
        self.out.lower_bound = Price::of_nano_dollars(bound);
        let mut lists: BTreeMap<(usize, &[u32]), Vec<String>> = BTreeMap::new();
        for (&(pool, type_index), shares) in &self.pools {
            let name = self.base.pools[pool].catalog.types()[type_index].name.clone();
            lists.entry((pool, shares)).or_default().push(name);
        }
        let list = |((pool, shares), instance_types): ((usize, &[u32]), Vec<String>)| PoolShares {
            node_pool: self.base.pools[pool].source.name().to_owned(),
            instance_types,
            shares_ppm: self.named(shares),
        };
        self.out.node_pools = lists.into_iter().map(list).collect();
        self.out
    }

    fn worth_of(&self, nano_dollars_per_hour: i64, shares: &[u32]) -> Worth {
        Worth { worth_nano_dollars_per_hour: nano_dollars_per_hour, shares_ppm: self.named(shares) }
    }

    /// The shares that are not zero, by the names of resources.
    fn named(&self, shares: &[u32]) -> BTreeMap<String, u32> {
        let names = self.base.classes.axes.names().iter().map(ToString::to_string);
        names.zip(shares.iter().copied()).filter(|(_, share)| *share > 0).collect()
    }
}

/// What a ledger says of one program.
struct Page<'l, 'b, 'a> {
    ledger: &'l mut Ledger<'b, 'a>,
    program: &'l Program,
    tills: Vec<Till>,
    /// What existing places and reservations are worth together, in billionths of a dollar an hour.
    worth: i128,
}

impl Page<'_, '_, '_> {
    /// The first kind of a type gives its shares to all.
    fn enter_type(&mut self, pool: usize, variant: usize, shares: &[f64]) {
        let type_index = self.ledger.base.pools[pool].variants[variant].type_index;
        if let Entry::Vacant(entry) = self.ledger.pools.entry((pool, type_index)) {
            entry.insert(millionths(shares));
        }
    }

    /// What pods pay on the kinds that pools make. Kinds that are beaten by one with the same shares are dearer for all.
    fn enter_prices(&mut self) {
        let shares = |kind: &Kind| match kind.origin {
            Origin::Pool { pool, variant } => {
                self.ledger.pools.get(&(pool, self.ledger.base.pools[pool].variants[variant].type_index))
            }
            _ => None,
        };
        let mut tills = Vec::new();
        for kind in &self.program.kinds {
            let Some(own) = shares(kind) else { continue };
            let is_dearer = kind.beaten_by.is_some_and(|other| shares(&self.program.kinds[other]) == Some(own));
            if !is_dearer {
                tills.push(Till::new(&kind.room, &kind.fits, kind.prices.clone(), own, &self.program.requests));
            }
        }
        self.tills.append(&mut tills);
    }

    fn enter_reservation(&mut self, reservation: usize, rows: &[ReservedRow], shares: &[f64], worth: f64) {
        let (worth, shares) = (whole(worth), millionths(shares));
        let base = self.ledger.base;
        let (name, _) = base.reservations.left.get_index(reservation).expect("a reservation that an offering names");
        self.worth += i128::from(worth) * i128::from(base.reservations.said[reservation].capacity);
        let requests = &self.program.requests;
        for row in rows {
            let fits = fitting(requests, &row.room);
            let price = |admits: &bool| if *admits { row.price.saturating_add(worth) as f64 } else { f64::INFINITY };
            let till = Till::new(&row.room, &fits, row.admits.iter().map(price).collect(), &shares, requests);
            self.tills.push(till);
        }
        let worth = self.ledger.worth_of(worth, &shares);
        self.ledger.out.reservations.insert(name.clone(), worth);
    }

    /// Places of one kind charge the same for a resource, so each is worth what its own room comes to. What pods pay on
    /// the cheapest of them is worked out here, so that there are not as many tills as places.
    fn enter_places(&mut self, kind: &Kind, places: &[usize], shares: &[f64], worth: f64) {
        let requests = &self.program.requests;
        let mut pays = vec![f64::INFINITY; requests.len()];
        for &place in places {
            let room = room_of(self.ledger.base, place);
            let (total, shares) = worth_of_room(&room, &kind.room, shares, worth);
            let till = Till::new(&room, &kind.fits, vec![total as f64], &shares, requests);
            for (request, pay) in pays.iter_mut().enumerate().filter(|(request, _)| kind.fits[*request]) {
                *pay = pay.min(till.pay(0, request));
            }
            if total > 0 {
                self.worth += i128::from(total);
                let name = self.ledger.base.places[place].source.name.clone();
                let worth = self.ledger.worth_of(total, &shares);
                self.ledger.out.places.insert(name, worth);
            }
        }
        let prices = kind.prices.iter().map(|price| price + 1.0).collect();
        self.tills.push(Till { prices, terms: pays.clone(), width: 1, parts: pays });
    }

    /// What all pods pay at least beyond what places and reservations are worth, in billionths of a dollar an hour.
    fn bound(&self) -> i128 {
        let pay = |group: &Group| {
            let (constraint, request) = (group.constraint, group.request);
            let rough = |till: &Till| till.prices[constraint] * till.parts[request];
            let least = self.tills.iter().map(rough).fold(f64::INFINITY, f64::min);
            if !least.is_finite() {
                return 0;
            }
            // Rounding takes less than one of each term, so no other can come out lower.
            let limit = |till: &Till| (least + 1.0 + till.width as f64) * (1.0 + 1e-9);
            let near = self.tills.iter().filter(|till| rough(till) <= limit(till));
            let pay = near.map(|till| till.pay(constraint, request)).fold(f64::INFINITY, f64::min);
            i128::from(whole(pay)) * group.count as i128
        };
        self.program.groups.iter().map(pay).sum::<i128>() - self.worth
    }
}

/// What the room of a place is worth if all the room of its kind is worth this much by these shares, and the shares of that.
fn worth_of_room(room: &[i64], all: &[i64], shares: &[f64], worth: f64) -> (i64, Vec<u32>) {
    let value = |((&room, &all), share): ((&i64, &i64), &f64)| {
        if all > 0 { worth * share * room.max(0) as f64 / all as f64 } else { 0.0 }
    };
    let values: Vec<f64> = room.iter().zip(all).zip(shares).map(value).collect();
    let total: f64 = values.iter().sum();
    let parts: Vec<f64> = values.iter().map(|value| value / total.max(f64::MIN_POSITIVE)).collect();
    (whole(total), millionths(&parts))
}

/// Shares in millionths, rounded down.
fn millionths(shares: &[f64]) -> Vec<u32> {
    shares.iter().map(|share| u32::try_from(whole(share * WHOLE)).unwrap_or(0)).collect()
}
