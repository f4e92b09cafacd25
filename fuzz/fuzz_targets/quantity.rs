//! A quantity that is read, printed and read again is the same quantity, and its roundings enclose it.
#![no_main]

use karpenter_core::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    let printed = quantity.to_string();
    let again: Quantity = printed.parse().unwrap_or_else(|e| panic!("{text:?} prints as {printed:?}: {e}"));
    assert_eq!(again, quantity, "{text:?} prints as {printed:?}");
    assert_eq!(again.to_string(), printed, "the printed form of {text:?} is not stable");
    check_bounds(quantity);
    check_sums(quantity);
    check_json(quantity, &printed);
});

/// Rounded down it is not above, rounded up not below, and the two are at most one apart.
fn check_bounds(quantity: Quantity) {
    let (floor, ceil) = (quantity.units_floor(), quantity.units_ceil());
    assert!(Quantity::from_units(floor) <= quantity && quantity <= Quantity::from_units(ceil));
    assert!(ceil - floor <= 1);
    let (floor, ceil) = (quantity.milli_floor(), quantity.milli_ceil());
    // Thousandths of the largest quantities do not fit the integer and stop at its ends.
    if floor > i64::MIN && ceil < i64::MAX {
        assert!(Quantity::from_milli(floor) <= quantity && quantity <= Quantity::from_milli(ceil));
        assert!(ceil - floor <= 1);
    }
    assert!(quantity <= Quantity::from_units(i64::MAX) && quantity >= Quantity::from_units(-i64::MAX));
}

/// Sums keep the cap, and taking away what was added gives back the quantity unless the cap cut it.
fn check_sums(quantity: Quantity) {
    let one = Quantity::from_units(1);
    let sum = quantity.saturating_add(one);
    assert!(sum >= quantity && sum <= Quantity::from_units(i64::MAX));
    if sum < Quantity::from_units(i64::MAX) {
        assert_eq!(sum.saturating_sub(one), quantity);
    }
    assert!(quantity.saturating_sub(quantity).is_zero());
}

/// The wire form is the printed form.
fn check_json(quantity: Quantity, printed: &str) {
    let json = serde_json::to_string(&quantity).expect("a quantity is a JSON string");
    assert_eq!(json, format!("{printed:?}"));
    assert_eq!(serde_json::from_str::<Quantity>(&json).expect("its own output"), quantity);
}
