/// The 64 bits of FNV-1a over texts, each ended by a zero byte: the same in every run and on every machine.
pub(crate) fn fnv<'t>(texts: impl IntoIterator<Item = &'t str>) -> u64 {
    let bytes = texts.into_iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_run_into_each_other() {
        assert_ne!(fnv(["ab", "c"]), fnv(["a", "bc"]));
        assert_eq!(fnv([]), 0xcbf2_9ce4_8422_2325);
    }
}
