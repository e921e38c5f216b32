//! The settings against runs of the stock allocator (`stock_runs.tsv`), and what no run can show.

use super::*;
use crate::size::{MOST_BYTES, POWER2_INTERVALS};
use proptest::prelude::*;

/// Padding that the stock allocator added in the recorded runs, in bytes.
const PAD: usize = 32;

fn runs(kind: &str) -> Vec<[&'static str; 4]> {
    let rows: Vec<_> = include_str!("stock_runs.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|row| row[0] == kind)
        .map(|row| [row[1], row[2], row[3], row[4]])
        .collect();
    assert!(!rows.is_empty(), "no recorded run of kind {kind}");
    rows
}

fn python_class(error: &ConfigError) -> &'static str {
    match error.class() {
        ErrorClass::Value => "ValueError",
        // torch_npu's binding has no class of its own for C++'s standard exceptions.
        ErrorClass::Runtime | ErrorClass::InvalidArgument | ErrorClass::OutOfRange => {
            "RuntimeError"
        }
    }
}

fn values(settings: &Settings) -> String {
    let divisions: Vec<_> = settings
        .roundup_power2_divisions
        .iter()
        .map(usize::to_string)
        .collect();
    format!(
        "{} {} {:?} {} {} {} {} {} {}",
        settings.max_split_size,
        settings.max_non_split_rounding_size,
        settings.garbage_collection_threshold,
        u8::from(settings.expandable_segments == ExpandableSegments::On),
        u8::from(settings.pinned_use_background_threads),
        settings.large_segment_size,
        settings.pinned_max_round_threshold,
        settings.pinned_max_cached_size,
        divisions.join(","),
    )
}

fn compare(rows: &[[&str; 4]], read: impl Fn(&str) -> Result<Settings, ConfigError>) {
    for [text, outcome, code, rest] in rows {
        match read(text) {
            Ok(settings) => assert_eq!((*outcome, *rest), ("ok", &*values(&settings)), "{text:?}"),
            Err(error) => {
                let ours = (python_class(&error), error.to_string());
                assert_eq!((*outcome, rest.to_string()), ours, "{text:?}");
                assert_eq!(
                    *code,
                    error.code().map_or("-", ErrorCode::as_str),
                    "{text:?}"
                );
            }
        }
    }
}

#[test]
fn strings_read_as_in_the_stock_allocator() {
    compare(&runs("parse"), Settings::parse);
}

#[test]
fn of_a_text_for_all_accelerators_torch_npus_own_keys_do_not_count() {
    let text = "page_size:1g,max_split_size_mb:64,base_addr_aligned_kb:0";
    let settings = Settings::parse_common(text).unwrap();
    let own = Settings::parse("max_split_size_mb:64").unwrap();
    assert_eq!(settings, own);
    // torch alone does not mind; virtual segments are not split by size.
    let both = Settings::parse_common("max_split_size_mb:64,expandable_segments:True").unwrap();
    assert_eq!(both, Settings::parse("expandable_segments:True").unwrap());
    assert_eq!(Settings::parse_common("").unwrap(), Settings::default());
    let error = Settings::parse_common("max_split_size_mb:64,foo:1").unwrap_err();
    assert!(error.to_string().contains("foo"), "{error}");
}

#[test]
fn run_time_changes_as_in_the_stock_allocator() {
    compare(&runs("run"), |text| Settings::default().apply_runtime(text));
}

#[test]
fn sizes_as_in_the_stock_allocator() {
    for [text, bytes, allocated, reserved] in runs("size") {
        let settings = Settings::parse(text).unwrap();
        let size = settings.round_size(bytes.parse().unwrap(), PAD);
        let segment = settings.allocation_size(size);
        assert_eq!(segment.to_string(), reserved, "{text:?} {bytes}");
        // A large segment that exceeds the block by 1 MiB or less is not split.
        let split = size <= 1 << 20 || segment - size > 1 << 20;
        let block = if split { size } else { segment };
        assert_eq!(block.to_string(), allocated, "{text:?} {bytes}");
    }
}

#[test]
fn pages_of_one_gibibyte_hold_the_large_pool_only() {
    let settings = Settings::parse("page_size:1g,large_segment_size_mb:64").unwrap();
    assert_eq!(settings.allocation_size(1 << 20), 2 << 20);
    assert_eq!(settings.allocation_size((1 << 20) + 512), 1 << 30);
    assert_eq!(settings.allocation_size((1 << 30) + 512), 2 << 30);
}

#[test]
fn own_keys_are_kept() {
    let settings = Settings::parse(
        "pinned_mem_register:True,base_addr_aligned_kb:8,page_size:1g,segment_size_mb:512,\
         multi_stream_lazy_reclaim:True,pinned_reserve_segment_size_mb:3,\
         per_process_memory_fraction:0.25,release_lock_on_npumalloc:True,\
         throw_on_npumalloc_oom:True",
    )
    .unwrap();
    assert!(settings.pinned_mem_register && settings.page_size_1g);
    assert!(settings.multi_stream_lazy_reclaim && settings.release_lock_on_npumalloc);
    assert!(settings.throw_on_npumalloc_oom && !settings.pin_memory_expandable_segments);
    assert_eq!(settings.base_addr_aligned_size, 8192);
    assert_eq!(settings.segment_size, 536_870_912);
    assert_eq!(settings.pinned_reserve_segment_size, 3_145_728);
    assert_eq!(settings.per_process_memory_fraction, 0.25);
}

#[test]
fn virtual_host_memory_excludes_registration() {
    let text = "pinned_mem_register:True,pin_memory_expandable_segments:True";
    let settings = Settings::parse(text).unwrap();
    assert!(settings.pin_memory_expandable_segments && !settings.pinned_mem_register);
}

// The stock allocator, given the same strings in this order, holds these values.
#[test]
fn a_run_time_change_resets_what_the_stock_allocator_resets() {
    let start = Settings::parse(
        "large_segment_size_mb:64,max_split_size_mb:100,max_non_split_rounding_mb:99,\
         garbage_collection_threshold:0.5,roundup_power2_divisions:4,segment_size_mb:32",
    )
    .unwrap();
    let changed = start.apply_runtime("throw_on_npumalloc_oom:True").unwrap();
    assert_eq!(changed.max_split_size, usize::MAX);
    assert_eq!(changed.max_non_split_rounding_size, 64 << 20);
    assert_eq!(changed.garbage_collection_threshold, 0.0);
    assert_eq!(changed.roundup_power2_divisions, [0; POWER2_INTERVALS]);
    assert_eq!(
        (changed.large_segment_size, changed.segment_size),
        (64 << 20, 32 << 20)
    );
    assert!(changed.throw_on_npumalloc_oom);
    assert_eq!(changed.round_size(4065, PAD), 4608);

    assert_eq!(start.apply_runtime("").unwrap(), start);
    let error = start.apply_runtime("max_split_size_mb:63").unwrap_err();
    assert_eq!(
        error,
        ConfigError::TooSmall {
            key: "max_split_size_mb",
            minimum_mb: 64
        }
    );
    let on = start.apply_runtime("expandable_segments:True").unwrap();
    let error = on.apply_runtime("max_split_size_mb:64").unwrap_err();
    assert_eq!(error, ConfigError::ExpandableConflict);
}

#[test]
fn keys_that_are_no_run_time_keys_can_be_applied_too() {
    let start = Settings::parse("large_segment_size_mb:64,multi_stream_lazy_reclaim:True").unwrap();
    let text = "roundup_power2_divisions:4,garbage_collection_threshold:0.5,page_size:1g";
    assert!(start.apply_runtime(text).is_err());
    let changed = start.apply_any(text).unwrap();
    assert_eq!(changed.round_size(5 << 20, 0), 5 << 20);
    assert_eq!(changed.round_size((5 << 20) + 1, 0), 6 << 20);
    assert_eq!(
        changed.garbage_collection_threshold.to_bits(),
        0.5f64.to_bits()
    );
    assert!(changed.page_size_1g && changed.multi_stream_lazy_reclaim);
    assert_eq!(changed.large_segment_size, 64 << 20);
    assert_eq!(
        start.apply_any("foo:1").unwrap_err(),
        ConfigError::UnknownKey { key: "foo".into() }
    );
}

/// Strings made of the pieces that the parser looks for.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "max_split_size_mb", "garbage_collection_threshold", "roundup_power2_divisions",
            "expandable_segments", "large_segment_size_mb", "max_non_split_rounding_mb",
            "pinned_max_cached_size_mb", "page_size", "segment_size_mb", "base_addr_aligned_kb",
            "per_process_memory_fraction", "pin_memory_expandable_segments",
        ]).prop_map(String::from),
        16 => prop::sample::select(vec![":", ",", "[", "]", ">", "True", "False", "1g", " ", "-"])
            .prop_map(String::from),
        4 => any::<i64>().prop_map(|n| n.to_string()),
        4 => (0..64u32).prop_map(|n| (1u64 << n).to_string()),
        2 => any::<f64>().prop_map(|n| n.to_string()),
        1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_panics(text in prop_oneof![any::<String>(), pieces()]) {
        let _ = Settings::parse(&text);
        let _ = Settings::default().apply_runtime(&text);
    }

    #[test]
    fn no_number_panics(text in "[-+]?(0[xX])?[0-9a-fA-F.]{0,40}([eEpP][-+]?[0-9]{0,30})?.{0,2}") {
        let _ = number::double(&text);
        let _ = number::unsigned(&text);
    }

    #[test]
    fn blocks_hold_their_request(
        bytes in 0..MOST_BYTES, shift in 0..60u32, divisions in prop::sample::select(
            vec!["0", "1", "2", "4", "8", "64", "4096", "9223372036854775808"]),
    ) {
        let bytes = bytes >> shift;
        let text = format!("roundup_power2_divisions:[>:{divisions},1:{divisions}]");
        let settings = Settings::parse(&text).unwrap();
        let size = settings.round_size(bytes, PAD);
        prop_assert!(size >= bytes + PAD && size.is_multiple_of(512));
        prop_assert!(settings.allocation_size(size) >= size);
    }
}
