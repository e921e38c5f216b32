//! Sizes of pages, and what is done where no more addresses are left for one.

use crate::*;

/// Virtual segments, and no sizes of pages.
const ASKED: &str = "expandable_segments:True";

/// A device without settings for the sizes of pages.
fn device_as_it_is(capacity: usize) -> (Arc<FakeDriver>, DeviceAllocator) {
    device_set(capacity, ASKED)
}

/// A device with these settings and no others.
fn device_set(capacity: usize, settings: &str) -> (Arc<FakeDriver>, DeviceAllocator) {
    let driver = Arc::new(FakeDriver::new(capacity));
    let settings = settings_by_default(settings);
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    (driver, device)
}

/// Serves a request, and tells the size of the pages under it.
fn page_under(device: &DeviceAllocator, bytes: usize) -> usize {
    let addr = allocate(device, bytes, S0);
    device.pages_under(addr).expect("virtual").page_size
}

#[test]
fn large_pages_are_a_part_of_the_memory_there_is() {
    for (capacity, share, refused, page) in [
        (64 * GIB, 1.0, false, 8 * MIB),
        (64 * GIB, 1.0, true, 10 * MIB),
        (24 * GIB, 1.0, true, 10 * MIB),
        (18 * GIB, 1.0, false, 6 * MIB),
        (18 * GIB, 1.0, true, 6 * MIB),
        (64 * GIB, 0.25, false, 6 * MIB),
        (GIB, 1.0, false, 4 * MIB),
    ] {
        let (driver, device) = device_as_it_is(capacity);
        if refused {
            driver.refuse_aliasing();
        }
        device.set_memory_fraction(share).expect("valid");
        for bytes in [MIB, 2 * MIB, 4 * MIB - 32] {
            assert_eq!(page_under(&device, bytes), 2 * MIB, "{bytes} bytes");
        }
        for bytes in [4 * MIB, 64 * MIB] {
            let found = page_under(&device, bytes);
            assert_eq!(found, page, "{bytes} bytes, {capacity} {share} {refused}");
        }
        // Free memory serves whatever fits there.
        let large = allocate(&device, 100 * MIB, S0);
        free(&device, large);
        assert_eq!(page_under(&device, 3 * MIB), page);
    }
}

#[test]
fn blocks_lie_in_pages_of_another_size_where_there_are_no_more_addresses() {
    for (first, second, page) in [
        (3 * MIB, 30 * MIB, 2 * MIB),
        (30 * MIB, 3 * MIB, 4 * MIB),
        (30 * MIB, 30 * MIB, 4 * MIB),
    ] {
        let (driver, device) = device_as_it_is(256 * MIB);
        allocate(&device, first, S0);
        driver.limit_addresses(0, 0);
        let found = page_under(&device, second);
        assert_eq!(found, page, "{first} and {second} bytes");
        // The driver is not asked each time.
        let asked = driver.calls("reserve_address");
        assert_eq!(page_under(&device, second), page);
        assert_eq!(driver.calls("reserve_address"), asked);
        assert_eq!(driver.calls("synchronize_device"), 0);
    }
}

#[test]
fn the_driver_is_asked_once_for_addresses_it_does_not_have_where_memory_moves() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    let blocks = [0; 63].map(|_| allocate(&device, 16 * MIB - 4096, S0));
    driver.limit_addresses(0, 0);
    let before = driver.calls("reserve_address");
    // Two holes each time, neither of which is large enough; the device is seen to be full at the first.
    let asked: Vec<u64> = (0..4)
        .map(|round| {
            device.deallocate(blocks[8 * round]);
            device.deallocate(blocks[8 * round + 4]);
            allocate(&device, 30 * MIB, S0);
            driver.calls("reserve_address") - before
        })
        .collect();
    assert!(
        asked[1] > 0 && asked[1..].iter().all(|&it| it == asked[1]),
        "{asked:?}"
    );
}

#[test]
fn pages_have_the_right_size_again_once_there_are_addresses() {
    let (driver, device) = device_as_it_is(256 * MIB);
    let medium = 4 * MIB - 32;
    let large = allocate(&device, 30 * MIB, S0);
    let other = allocate(&device, 30 * MIB, S1);
    driver.limit_addresses(0, 0);
    assert_eq!(page_under(&device, medium), 4 * MIB);
    driver.limit_addresses(0, GIB);
    assert_eq!(page_under(&device, medium), 4 * MIB, "asked too soon");
    assert!(device.deallocate(large) && device.deallocate(other));
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(page_under(&device, medium), 2 * MIB);
}

/// The sizes of the pages under blocks of these sizes, MiB, one after another on a large device.
fn pages_under(sizes: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let (_driver, device) = device_as_it_is(64 * GIB);
    let pages = sizes
        .into_iter()
        .map(|size| page_under(&device, size * MIB) / MIB)
        .collect();
    device.check_consistency().expect("consistent");
    pages
}

#[test]
fn a_gib_of_small_blocks_makes_the_pages_small() {
    // 102 blocks of 10 MiB are less than a GiB, 103 are more: the first request after that has small pages. What was
    // mapped before is as it was, and not mapped on.
    let sizes = [10; 104].into_iter().chain([100; 2]);
    let pages = pages_under(sizes);
    assert_eq!(pages[..103], [8; 103]);
    assert_eq!(pages[103..], [2; 3]);
    // A request has 512 bytes more.
    let after = |size: usize| pages_under([size; 400])[399];
    assert_eq!(
        [5, 11, 12, 19, 20, 27, 28].map(after),
        [2, 2, 4, 4, 6, 6, 8]
    );
}

#[test]
fn half_of_the_bytes_tell_how_large_blocks_are() {
    for (large, small, page) in [(500, 9, 2), (530, 9, 8), (500, 26, 6), (530, 26, 8)] {
        let sizes = [large].into_iter().chain([small; 70]);
        assert_eq!(pages_under(sizes).last(), Some(&page), "{large} {small}");
    }
}

#[test]
fn pages_that_have_one_address_are_between_as_well() {
    for (size, page) in [(26, 6), (28, 8), (35, 8), (36, 10)] {
        let (driver, device) = device_as_it_is(64 * GIB);
        driver.refuse_aliasing();
        let pages = [0; 50].map(|_| page_under(&device, size * MIB));
        assert_eq!((pages[0], pages[49]), (10 * MIB, page * MIB), "{size} MiB");
    }
}

#[test]
fn blocks_of_the_small_pool_do_not_count_as_small_large_ones() {
    let (_driver, device) = device_as_it_is(64 * GIB);
    for _ in 0..3000 {
        allocate(&device, MIB / 2, S0);
    }
    allocate(&device, 1200 * MIB, S0);
    assert_eq!(page_under(&device, 100 * MIB), 8 * MIB);
}

#[test]
fn pages_stay_large_where_blocks_are_at_the_first_gib() {
    // Small ones that come later change nothing, however many.
    let sizes = [512, 512].into_iter().chain([10; 800]);
    assert_eq!(pages_under(sizes), [8; 802]);
}

/// Sizes of the pages under blocks that follow others, after one more of `passing` bytes came and went. Sizes in MiB.
fn pages_after(
    weights: impl IntoIterator<Item = usize>,
    passing: usize,
    sizes: impl IntoIterator<Item = usize>,
) -> Vec<usize> {
    let (_driver, device) = device_as_it_is(64 * GIB);
    for size in weights {
        allocate(&device, size * MIB, S0);
    }
    pages_after_passing(&device, &[passing], sizes)
}

/// Sizes of the pages under a device's next blocks, after some of so many bytes came and went. Sizes in MiB.
fn pages_after_passing(
    device: &DeviceAllocator,
    passing: &[usize],
    sizes: impl IntoIterator<Item = usize>,
) -> Vec<usize> {
    for &bytes in passing {
        let addr = allocate(device, bytes, S0);
        free(device, addr);
    }
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    let pages = |size: usize| page_under(device, size * MIB) / MIB;
    let pages = sizes.into_iter().map(pages).collect();
    device.check_consistency().expect("consistent");
    pages
}

/// The same after 2 GiB of large blocks; a GiB that was freed makes the program count as loaded.
fn pages_after_weights(sizes: impl IntoIterator<Item = usize>) -> Vec<usize> {
    pages_after([512; 4], GIB, sizes)
}

#[test]
fn two_gib_of_small_blocks_after_the_weights_make_the_pages_small() {
    // Each is 512 bytes more than 10 MiB: 205 of them are the first to come to 2 GiB.
    let pages = pages_after_weights([10; 210]);
    assert_eq!(pages[..205], [8; 205]);
    assert_eq!(pages[205..], [2; 5]);
    let after = |size: usize| pages_after_weights([size; 500])[499];
    // Sizes in between make no difference, as the weights told by themselves.
    assert_eq!([11, 12, 20].map(after), [2, 8, 8]);
}

#[test]
fn blocks_count_as_weights_until_a_gib_was_freed() {
    assert_eq!(pages_after([512; 4], GIB - MIB, [10; 800]), [8; 800]);
}

#[test]
fn what_comes_after_the_weights_is_looked_at_twice() {
    // 2 GiB of large blocks, then small ones: at 4 GiB these are in the middle if they are more.
    let sizes = |large: usize, small: usize| {
        std::iter::repeat_n(100, large).chain(std::iter::repeat_n(10, small))
    };
    let pages = pages_after_weights(sizes(21, 400));
    assert_eq!(pages.last(), Some(&8), "2,100 MiB of 4,100");
    let pages = pages_after_weights(sizes(20, 400));
    assert_eq!(pages.last(), Some(&2), "2,000 MiB of 4,100");
    // Not a third time.
    let pages = pages_after_weights(sizes(40, 800));
    assert_eq!(pages.last(), Some(&8));
}

#[test]
fn small_blocks_among_the_weights_make_no_difference() {
    let weights = [512; 4].into_iter().chain([10; 600]);
    assert_eq!(pages_after(weights, GIB, [100; 60]), [8; 60]);
}

#[test]
fn small_requests_get_no_memory_on_top_where_all_pages_are_small() {
    let usual = "expandable_segments:True";
    let configured = "expandable_segments:True,segment_size_mb:20";
    for (settings, size, more) in [
        (usual, 5 * MIB, false),
        (usual, 100 * MIB, true),
        (configured, 5 * MIB, true),
    ] {
        let (_driver, device) = device_set(64 * GIB, settings);
        let learnt: Vec<usize> = (0..GIB.div_ceil(size) + 1)
            .map(|_| allocate(&device, size, S0))
            .collect();
        learnt.into_iter().for_each(|addr| free(&device, addr));
        for stream in [S0, S1] {
            let addr = allocate(&device, 8 * GIB, stream);
            free(&device, addr);
        }
        // 256 MiB more than was ever needed are to be held.
        let most = 8 * GIB + 512 + 256 * MIB;
        let held = || device.stats().0.reserved_bytes.current() as usize;
        assert!(most - 20 * MIB < held() && held() <= most, "{settings}");
        for _ in 0..30 {
            allocate(&device, MIB - 4096, S0);
        }
        assert_eq!(held() > most, more, "{settings} {size}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn pages_become_smaller_once_blocks_were_used_on_several_other_streams() {
    for (capacity, settings, refused, before, after) in [
        (64 * GIB, ASKED, false, 8 * MIB, 2 * MIB),
        (64 * GIB, ASKED, true, 10 * MIB, 4 * MIB),
        (64 * GIB, "", false, 8 * MIB, 4 * MIB),
        (16 * GIB, ASKED, false, 6 * MIB, 2 * MIB),
        (8 * GIB, ASKED, false, 4 * MIB, 4 * MIB),
    ] {
        let (driver, device) = device_set(capacity, settings);
        if refused {
            driver.refuse_aliasing();
        }
        let stays = allocate(&device, 100 * MIB, S0);
        assert_eq!(
            device.pages_under(stays).expect("virtual").page_size,
            before
        );
        let used = [7, 8].map(|stream| {
            let block = allocate(&device, 40 * MIB, S0);
            assert!(device.record_stream(block, token(stream)));
            driver.submit(token(stream));
            block
        });
        free(&device, used[0]);
        assert_eq!(page_under(&device, 100 * MIB), before, "one other stream");
        free(&device, used[1]);
        assert_eq!(page_under(&device, 100 * MIB), after, "two other streams");
        // What is mapped is as it was, and serves what fits there, but is not mapped on.
        assert_eq!(
            device.pages_under(stays).expect("virtual").page_size,
            before
        );
        free(&device, stays);
        assert_eq!(page_under(&device, 70 * MIB), before);
        assert_eq!(page_under(&device, 400 * MIB), after);
        driver.finish(token(7));
        driver.finish(token(8));
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn pages_are_small_while_a_program_seems_to_load_shards() {
    for (capacity, settings, refused, small, usual, later) in [
        (64 * GIB, ASKED, false, 2, 8, 8),
        (64 * GIB, ASKED, true, 4, 10, 4),
        (64 * GIB, "", false, 4, 8, 4),
        (28 * GIB, ASKED, false, 2, 8, 8),
    ] {
        let of = |passing: usize| {
            let (driver, device) = device_set(capacity, settings);
            if refused {
                driver.refuse_aliasing();
            }
            pages_after_passing(&device, &[passing], [500; 35])
        };
        assert_eq!(of(GIB - MIB), [usual; 35], "{settings} {refused}");
        // Until a quarter of all memory is active; a range whose pages are as small as any serves on.
        let pages = of(GIB);
        let first = (capacity / 4).div_ceil(500 * MIB + 512);
        assert_eq!(pages[..first], vec![small; first], "{settings} {refused}");
        assert_eq!(
            pages[first..],
            vec![later; 35 - first],
            "{settings} {refused}"
        );
    }
    // Not while less than a GiB was needed at once.
    let (_driver, device) = device_as_it_is(64 * GIB);
    let pages = pages_after_passing(&device, &[64 * MIB; 16], [500; 4]);
    assert_eq!(pages, [8, 8, 8, 2]);
    // A GiB that lives first tells otherwise.
    let (_driver, device) = device_as_it_is(64 * GIB);
    allocate(&device, GIB, S0);
    allocate(&device, 10 * MIB, S1);
    let pages = pages_after_passing(&device, &[64 * MIB; 16], [500]);
    assert_eq!(pages, [8]);
}

#[test]
fn configured_pages_are_as_large_under_small_blocks() {
    let (_driver, device) = device_with(64 * GIB, "expandable_segments:True,segment_size_mb:20");
    let pages: Vec<usize> = (0..110).map(|_| page_under(&device, 10 * MIB)).collect();
    assert_eq!(pages, [20 * MIB; 110]);
}
