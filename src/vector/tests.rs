//! Every kernel against the plain sum, and every bound against the score.

use super::kernels::{COARSE_BLOCK_BYTES, COARSE_BLOCK_VALUES, Kernels};
use super::*;

/// A small deterministic source of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    fn vector(&mut self, dim: usize) -> Vec<f32> {
        (0..dim).map(|_| self.unit()).collect()
    }

    fn codes(&mut self, dim: usize) -> Vec<i8> {
        (0..dim).map(|_| self.next() as i8).collect()
    }
}

/// Sizes that one of the tests below takes. Miri would need hours for all of them: it gets those around the ends of blocks.
fn sizes(all: impl IntoIterator<Item = usize>, under_miri: impl IntoIterator<Item = usize>) -> Vec<usize> {
    if cfg!(miri) { under_miri.into_iter().collect() } else { all.into_iter().collect() }
}

/// Returns every length up to three blocks of 64 values, and larger ones.
fn lengths() -> Vec<usize> {
    let larger = [255, 256, 257, 384, 1000, 1536, DIM_MAX];
    sizes((0..=200).chain(larger), (0..=40).chain([63, 64, 65, 127, 128, 129, 161, 257]))
}

fn exact(a: &[i8], b: &[i8]) -> i64 {
    a.iter().zip(b).map(|(&x, &y)| i64::from(x) * i64::from(y)).sum()
}

#[test]
fn the_portable_kernels_agree_with_a_sum_in_f64() {
    let mut random = Random(1);
    let portable = *Kernels::supported().last().expect("the portable variant is always there");
    for dim in lengths() {
        let (a, b) = (random.vector(dim), random.vector(dim));
        let wide = |f: fn(f64, f64) -> f64| -> (f64, f64) {
            let terms = a.iter().zip(&b).map(|(&x, &y)| f(x.into(), y.into()));
            terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
        };
        for (found, (sum, size)) in
            [(portable.dot(&a, &b), wide(|x, y| x * y)), (portable.l2_squared(&a, &b), wide(|x, y| (x - y) * (x - y)))]
        {
            let allowed = size * (dim as f64 / 64.0 + 10.0) * f64::from(f32::EPSILON);
            assert!((f64::from(found) - sum).abs() <= allowed, "dim {dim}: {found} against {sum}");
        }
    }
}

#[test]
fn every_variant_gives_the_same_bits_at_every_length_and_alignment() {
    let mut random = Random(2);
    let portable = *Kernels::supported().last().expect("the portable variant is always there");
    for dim in lengths() {
        let (a, b) = (random.vector(dim + 1), random.vector(dim + 1));
        for kernels in Kernels::supported() {
            for shift in [0, 1] {
                let (a, b) = (&a[shift..shift + dim], &b[1..=dim]);
                let name = kernels.name();
                assert_eq!(kernels.dot(a, b).to_bits(), portable.dot(a, b).to_bits(), "dot, {name}, dim {dim}");
                let (found, plain) = (kernels.l2_squared(a, b), portable.l2_squared(a, b));
                assert_eq!(found.to_bits(), plain.to_bits(), "l2, {name}, dim {dim}");
            }
        }
    }
}

#[test]
fn every_variant_multiplies_codes_exactly() {
    let mut random = Random(3);
    for dim in lengths() {
        let (a, b) = (random.codes(dim), random.codes(dim));
        let extremes = [vec![127; dim], vec![-127; dim], vec![-128; dim]];
        for kernels in Kernels::supported() {
            let name = kernels.name();
            assert_eq!(i64::from(kernels.dot_i8(&a, &b)), exact(&a, &b), "{name}, dim {dim}");
            for x in &extremes {
                for y in &extremes {
                    assert_eq!(i64::from(kernels.dot_i8(x, y)), exact(x, y), "{name}, dim {dim}");
                }
            }
        }
    }
}

#[test]
fn every_variant_multiplies_several_rows_of_codes_exactly() {
    let mut random = Random(9);
    // More rows than are fetched ahead.
    let counts = sizes(0..=40, (0..=9).chain([20]));
    let asked: Vec<u32> = (0..40).map(|i| i * 5 % 7).collect();
    for dim in lengths().into_iter().filter(|&dim| dim <= 1536) {
        let rows = 7;
        let mut codes = random.codes(rows * dim);
        codes[..dim].fill(-128);
        for a in [random.codes(dim), vec![-128; dim], vec![127; dim]] {
            let of_rows: Vec<i32> = (0..rows).map(|row| exact(&a, &codes[row * dim..][..dim]) as i32).collect();
            let expected: Vec<i32> = asked.iter().map(|&row| of_rows[row as usize]).collect();
            for kernels in Kernels::supported() {
                for &count in &counts {
                    let mut out = vec![7; count];
                    kernels.dots_i8(&a, &codes, &asked[..count], &mut out);
                    assert_eq!(out, expected[..count], "{}, dim {dim}", kernels.name());
                }
            }
        }
    }
}

#[test]
fn every_variant_multiplies_half_bytes_exactly() {
    let mut random = Random(10);
    for blocks in sizes([0, 1, 2, 3, 8, 12, 512], [0, 1, 2, 3, 8]) {
        let (dim, size) = (blocks * COARSE_BLOCK_VALUES, blocks * COARSE_BLOCK_BYTES);
        let mut bytes: Vec<u8> = (0..5 * size).map(|_| random.next() as u8).collect();
        bytes[..size].fill(0xFF);
        let half = |row: usize, i: usize| {
            let byte = bytes[row * size + i / COARSE_BLOCK_VALUES * COARSE_BLOCK_BYTES + i % COARSE_BLOCK_BYTES];
            i64::from(if i % COARSE_BLOCK_VALUES < COARSE_BLOCK_BYTES { byte & 15 } else { byte >> 4 })
        };
        let asked: Vec<u32> = (0..9).map(|i| i * 3 % 5).collect();
        for a in [random.codes(dim), vec![-128; dim], vec![127; dim]] {
            let product = |row: u32| (0..dim).map(|i| i64::from(a[i]) * half(row as usize, i)).sum::<i64>() as i32;
            let expected: Vec<i32> = asked.iter().map(|&row| product(row)).collect();
            for kernels in Kernels::supported() {
                for count in 0..=asked.len() {
                    let mut out = vec![7; count];
                    kernels.dots_coarse(&a, &bytes, &asked[..count], &mut out);
                    assert_eq!(out, expected[..count], "{}, {blocks} blocks", kernels.name());
                }
            }
        }
    }
}

#[test]
fn rows_behind_the_end_are_zero_in_every_variant() {
    let mut random = Random(11);
    let (a, codes) = (random.codes(384), random.codes(384 * 2));
    let halves: Vec<u8> = (0..500).map(|_| random.next() as u8).collect();
    let mut cut = Vec::new();
    for kernels in Kernels::supported() {
        let mut out = [7; 5];
        kernels.dots_i8(&a, &codes, &[1, 2, 0, u32::MAX, 3], &mut out);
        assert_eq!(out.map(|product| product != 0), [true, false, true, false, false], "{}", kernels.name());
        // Row 2 of 192 bytes ends before its last block.
        kernels.dots_coarse(&a, &halves, &[2, 3, 0, u32::MAX, 1], &mut out);
        assert_eq!(out.map(|product| product != 0), [false, false, true, false, true], "{}", kernels.name());
        cut.push(out);
    }
    assert!(cut.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn coarse_estimates_are_near_the_scores_and_equal_in_any_company() {
    let mut random = Random(12);
    for dim in sizes([1, 2, 5, 64, 100, 128, 129, 384, 1000], [1, 5, 64, 129]) {
        let vectors: Vec<Vec<f32>> = (0..9).map(|_| random.vector(dim)).collect();
        for metric in Metric::ALL {
            let mut bytes = vec![0; vectors.len() * CoarseRows::row_bytes(dim)];
            for (vector, place) in vectors.iter().zip(CoarseRows::rows_mut(&mut bytes, dim)) {
                let mut code = vec![0; dim];
                let scale = quantize(vector, &mut code).0;
                CoarseSource { bytes: &code, scale, norm: norm(vector), extra_dimension: 0.0 }.write(metric, place);
            }
            let rows = CoarseRows::new(&bytes, dim);
            let prepared = PreparedVector::new(metric, random.vector(dim));
            let query = prepared.coarse_query();
            let mut estimates = Estimates::default();
            query.estimate_many(rows, &[8, 0, 1, 2, 3, 4, 5, 6, 7], &mut estimates);
            for (i, row) in [8, 0, 1, 2, 3, 4, 5, 6, 7].into_iter().enumerate() {
                let (vector, estimate) = (&vectors[row as usize], estimates.scores[i]);
                assert_eq!(query.estimate(rows, row).to_bits(), estimate.to_bits());
                let score = prepared.score(vector, norm(vector));
                let size = if metric == Metric::Cosine { 1.0 } else { norm(vector).max(prepared.norm()) };
                let size = if metric == Metric::Dot { size * size } else { size };
                assert!((estimate - score).abs() <= 0.15 * size, "{metric}, dim {dim}: {estimate}, {score}");
            }
        }
    }
}

#[test]
fn what_lies_so_many_times_as_far_is_worth_about_what_it_should_be() {
    let mut random = Random(10);
    let dim = 384;
    for metric in Metric::ALL {
        let query = PreparedVector::new(metric, random.vector(dim)).coarse_query();
        for score in [-0.9_f32, -0.3, 0.0] {
            let (near, far) = (query.score_at_distance_times(score, 1.0), query.score_at_distance_times(score, 1.5));
            let wanted = match metric {
                // Of unit vectors: 2 (1 - score) is the square of the distance.
                Metric::Cosine => 1.0 - (1.0 - score) * 2.25,
                Metric::L2 => score * 1.5,
                Metric::Dot => f32::MIN,
            };
            assert!(far <= wanted && near <= score, "{metric}");
            if metric == Metric::Cosine {
                assert!(wanted - far < 0.01 && score - near < 0.01, "{metric}: {far} for {wanted}");
            }
        }
    }
    // Under l2 what estimates are wrong by is a share of the lengths.
    let query = PreparedVector::new(Metric::L2, vec![0.001; dim]).coarse_query();
    assert!((query.score_at_distance_times(-2.0, 1.5) + 3.0).abs() < 1e-3);
    // Lengths whose squares are too large or too small for an f32.
    for size in [1e30_f32, 1e-30] {
        let far =
            PreparedVector::new(Metric::L2, vec![size; dim]).coarse_query().score_at_distance_times(-100.0 * size, 1.5);
        assert!((far / size + 150.0).abs() < 0.1, "{far}");
    }
}

#[test]
fn a_coarse_row_keeps_zeros_and_its_own_length() {
    let mut code = vec![0; 200];
    (code[3], code[150]) = (127, -60);
    let mut out = vec![0; CoarseRows::row_bytes(200)];
    let source = CoarseSource { bytes: &code, scale: 0.5, norm: 70.2, extra_dimension: 0.0 };
    CoarseRows::rows_mut(&mut out, 200).for_each(|place| source.write(Metric::Dot, place));
    assert!(out[..128].iter().all(|&byte| byte & 0xF0 == 0x80 || byte & 15 == 8));
    let own = CoarseQuery::new(Metric::Dot, source).estimate(CoarseRows::new(&out, 200), 0);
    let exact = 0.25 * (127.0 * 127.0 + 60.0 * 60.0);
    assert!((own - exact).abs() < 1e-3 * exact, "{own} against {exact}");
}

/// A step that is wide enough for the large value would make zeros of all others.
#[test]
fn a_coarse_row_keeps_what_is_small_beside_one_large_value() {
    let mut code = vec![8; 1000];
    code[0] = 127;
    let mut out = vec![0; CoarseRows::row_bytes(1000)];
    let source = CoarseSource { bytes: &code, scale: 1.0, norm: 283.0, extra_dimension: 0.0 };
    CoarseRows::rows_mut(&mut out, 1000).for_each(|place| source.write(Metric::Dot, place));
    let mut others = code.clone();
    others[0] = 0;
    let query = CoarseQuery::new(Metric::Dot, CoarseSource { bytes: &others, ..source });
    let (estimate, exact) = (query.estimate(CoarseRows::new(&out, 1000), 0), 999.0 * 64.0);
    assert!((estimate - exact).abs() < 0.15 * exact, "{estimate} against {exact}");
}

#[test]
fn damaged_factors_of_a_coarse_row_give_a_number() {
    let mut random = Random(13);
    for metric in Metric::ALL {
        let query = PreparedVector::new(metric, random.vector(64)).coarse_query();
        for factors in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            for size in [factors, 0.0] {
                let mut bytes = vec![0x5A; 64];
                bytes.extend(factors.to_le_bytes().into_iter().chain(size.to_le_bytes()));
                assert!(query.estimate(CoarseRows::new(&bytes, 64), 0).is_finite());
            }
        }
    }
}

#[test]
#[should_panic(expected = "one dimension")]
fn vectors_of_different_dimension_are_refused() {
    let _ = dot(&[1.0], &[1.0, 2.0]);
}

#[test]
fn norms_are_right_far_beyond_what_f32_can_square() {
    assert_eq!(norm(&[3.0, 4.0]), 5.0);
    assert_eq!(norm(&[3e30, 4e30]), 5e30);
    assert!((norm(&[3e-30, 4e-30]) / 5e-30 - 1.0).abs() < 1e-6);
    assert_eq!(norm(&[f32::MAX; 4]), f32::MAX);
    assert_eq!(norm(&[0.0; 7]), 0.0);
    assert_eq!(norm(&[]), 0.0);
}

#[test]
fn scores_follow_the_metric() {
    let (q, x) = (vec![1.0, 0.0], [3.0, 4.0]);
    let score = |metric| PreparedVector::new(metric, q.clone()).score(&x, norm(&x));
    assert_eq!(score(Metric::Cosine), 0.6);
    assert_eq!(score(Metric::L2), -(20.0_f32.sqrt()));
    assert_eq!(score(Metric::Dot), 3.0);
    let distance = |metric, score| PreparedVector::new(metric, q.clone()).distance(score);
    assert_eq!(distance(Metric::Cosine, 0.75), 0.25);
    assert_eq!(distance(Metric::L2, -2.0), 2.0);
    assert_eq!(distance(Metric::Dot, 3.0), -3.0);
    assert!(distance(Metric::L2, 0.0).is_sign_positive());
}

#[test]
fn scores_stay_finite_and_right_for_tiny_huge_and_zero_vectors() {
    for (q, x, cosine) in [
        (vec![1e30, 0.0], [1e30, 1e30], 0.5_f32.sqrt()),
        (vec![1e-30, 0.0], [1e-30, 1e-30], 0.5_f32.sqrt()),
        (vec![1e-30, 0.0], [1e30, 1e30], 0.5_f32.sqrt()),
        (vec![f32::MAX, f32::MAX], [f32::MAX, f32::MAX], 1.0),
        (vec![f32::MAX, f32::MAX], [f32::MIN, f32::MIN], -1.0),
        (vec![0.0, 0.0], [1.0, 1.0], 0.0),
    ] {
        for metric in Metric::ALL {
            let prepared = PreparedVector::new(metric, q.clone());
            let score = prepared.score(&x, norm(&x));
            assert!(score.is_finite(), "{metric} {q:?} {x:?}: {score}");
            if metric == Metric::Cosine {
                assert!((score - cosine).abs() < 1e-6, "{q:?} {x:?}: {score} against {cosine}");
            }
        }
    }
}

#[test]
fn a_vector_is_its_own_nearest_row() {
    let mut random = Random(4);
    for dim in [1, 3, 384, 1000] {
        let v = random.vector(dim);
        let score = |metric| PreparedVector::new(metric, v.clone()).score(&v, norm(&v));
        assert!(score(Metric::Cosine) > 1.0 - 1e-6);
        assert_eq!(score(Metric::L2), 0.0);
    }
}

/// Checks bounds and estimate of one pair under all metrics; returns the width of the cosine's.
fn check_bounds(q: &[f32], x: &[f32]) -> f32 {
    let mut bytes = vec![0; x.len()];
    let (scale, residual) = quantize(x, &mut bytes);
    let code = Code { bytes: &bytes, scale, residual };
    let mut width = 0.0;
    for metric in Metric::ALL {
        let prepared = PreparedVector::new(metric, q.to_vec());
        let score = prepared.score(x, norm(x));
        let found = prepared.code_product(code, norm(x));
        let (lower, upper) = prepared.bounds(found);
        let told = format!("{metric}, dim {}: {lower} <= {score} <= {upper}", x.len());
        assert!(lower <= score && score <= upper, "{told}");
        let passes = |worst| prepared.sieve(worst).passes(found);
        assert!(passes(Some(upper)) && passes(None), "the sieve holds back what the bounds admit: {told}");
        if metric == Metric::Cosine {
            width = upper - lower;
        }
    }
    width
}

#[test]
fn bounds_hold_on_random_pairs_and_are_tight() {
    let mut random = Random(5);
    for dim in [1, 2, 3, 63, 64, 65, 384, 1000] {
        for _ in 0..300 {
            let width = check_bounds(&random.vector(dim), &random.vector(dim));
            assert!(width < 0.04, "dim {dim}: {width}");
        }
    }
}

#[test]
fn bounds_hold_on_clustered_pairs() {
    let mut random = Random(6);
    for dim in [1, 3, 384, 1000] {
        for power in 0..12 {
            let q = random.vector(dim);
            let near: Vec<f32> = q.iter().map(|x| x + random.unit() * 10.0_f32.powi(-power)).collect();
            check_bounds(&q, &q);
            check_bounds(&q, &near);
            let opposite: Vec<f32> = q.iter().map(|x| -x).collect();
            check_bounds(&q, &opposite);
        }
    }
}

#[test]
fn bounds_hold_on_extreme_pairs() {
    let mut random = Random(7);
    let sizes = [1e-45, 1e-38, 1e-30, 1e-16, 1e-15, 1e-7, 1.0, 1e7, 1e15, 1e16, 1e30, 1e38];
    for dim in [1, 3, 384] {
        for a in sizes {
            for b in sizes {
                let q: Vec<f32> = random.vector(dim).iter().map(|x| x * a).collect();
                let x: Vec<f32> = random.vector(dim).iter().map(|x| x * b).collect();
                check_bounds(&q, &x);
                // One value far above the rest leaves the rest without a code.
                let mut spiked = x.clone();
                spiked[0] = b * 1000.0_f32.min(f32::MAX / b / 2.0);
                check_bounds(&q, &spiked);
                check_bounds(&spiked, &q);
                check_bounds(&q, &vec![0.0; dim]);
            }
        }
    }
}

#[test]
fn bounds_hold_where_every_rounding_goes_the_same_way() {
    // All products equal, so that the sums' roundings do not cancel.
    for dim in [384, 1000, DIM_MAX] {
        for value in [0.1, 0.333_333_34, 1.000_000_1, 0.999_999_94] {
            check_bounds(&vec![value; dim], &vec![value; dim]);
            check_bounds(&vec![value; dim], &vec![-value; dim]);
        }
    }
}

#[test]
fn the_sieve_is_as_fine_as_the_bounds() {
    let mut random = Random(9);
    for metric in Metric::ALL {
        for dim in [3, 384, 1000] {
            let (q, x) = (random.vector(dim), random.vector(dim));
            let (prepared, length, mut bytes) = (PreparedVector::new(metric, q), norm(&x), vec![0; dim]);
            let (scale, residual) = quantize(&x, &mut bytes);
            let found = prepared.code_product(Code { bytes: &bytes, scale, residual }, length);
            let upper = prepared.bounds(found).1;
            let size = if metric == Metric::Cosine { 1.0 } else { prepared.norm() * length };
            let sieve = prepared.sieve(Some(upper + 1e-5 * size));
            assert!(!sieve.passes(found), "{metric}, dim {dim}: {upper}");
            // A row without a vector, or with damaged numbers, is not for the sieve to judge.
            assert!(sieve.passes(CodeProduct { norm: -1.0, ..found }));
            assert!(sieve.passes(CodeProduct { scale: f32::NAN, ..found }));
        }
    }
}
