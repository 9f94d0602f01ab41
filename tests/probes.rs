//! The kernels that belong to no op, on the host emulator: what they compute is what their times are believed for.
//!
//! Like `tests/emulated.rs`, they need `cargo xtask emulate` and say so where it was not run.

use workbench::error::Result;
use workbench::op::{Arg, Chip, DType, Init, Launch, Rng};
use workbench::run::probes::{self, Config};
use workbench::run::{Emulator, Executor, fill, unfused};

fn run(test: impl FnOnce(&mut Emulator) -> Result<()>) {
    let required = std::env::var("WORKBENCH_REQUIRE_EMULATED").is_ok_and(|v| v == "1");
    match Emulator::new(Chip::H200) {
        Ok(mut emulator) => test(&mut emulator).unwrap_or_else(|e| panic!("{e}")),
        Err(e) if required => panic!("{e}"),
        Err(e) => eprintln!("SKIPPED: {e}"),
    }
}

fn words(raw: &[u8]) -> Vec<u32> {
    raw.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect()
}

/// `len` random bytes at a fresh address, and the same bytes here.
fn random(e: &mut Emulator, len: u64, seed: u64) -> Result<(u64, Vec<u8>)> {
    let data = fill::bytes(&Init::Bits, DType::U8, seed, 0, len)?;
    let address = e.alloc(len)?;
    e.write(address, &data)?;
    Ok((address, data))
}

#[test]
fn device_fills_are_the_hosts_bit_for_bit() {
    run(|e| {
        let key = fill::key(7, "w");
        let cases = [
            (DType::F32, Init::Normal { std: 0.37 }, 0, 0.37 / fill::SUM_STD, 0.0),
            (DType::Bf16, Init::Normal { std: 1.0 }, 0, 1.0 / fill::SUM_STD, 0.0),
            (DType::F16, Init::Normal { std: 3.0 }, 0, 3.0 / fill::SUM_STD, 0.0),
            (DType::E4m3, Init::Normal { std: 100.0 }, 0, 100.0 / fill::SUM_STD, 0.0),
            (DType::F32, Init::Uniform { lo: -0.3, hi: 1.7 }, 1, -0.3, 1.7),
            (DType::E4m3, Init::Uniform { lo: -0.01, hi: 0.01 }, 1, -0.01, 0.01),
            (DType::U8, Init::Uniform { lo: 3.0, hi: 9.0 }, 1, 3.0, 9.0),
            (DType::I32, Init::Uniform { lo: 0.0, hi: 128_256.0 }, 1, 0.0, 128_256.0),
            (DType::I64, Init::Uniform { lo: -4.0, hi: 4.0 }, 1, -4.0, 4.0),
        ];
        let len = 1_000u64;
        for (dtype, init, kind, a, b) in cases {
            let address = e.alloc(len * dtype.size())?;
            let launch = Launch::new("common/fill", format!("fill_{}", dtype.name()), [3, 1, 1], [64, 1, 1]);
            e.launch(&[launch.ptr(address).i64(len as i64).arg(Arg::U64(key)).i32(kind).f32(a).f32(b)])?;
            let mut got = vec![0; (len * dtype.size()) as usize];
            e.read(address, &mut got)?;
            assert_eq!(got, fill::bytes(&init, dtype, key, 0, len)?, "{dtype:?} {init:?}");
            e.free(address)?;
        }
        for bytes in [1u64, 7, 8, 8_193] {
            let address = e.alloc(bytes)?;
            let launch = Launch::new("common/fill", "fill_bits", [2, 1, 1], [64, 1, 1]);
            e.launch(&[launch.ptr(address).i64(bytes as i64).arg(Arg::U64(key)).i32(2).f32(0.0).f32(0.0)])?;
            let mut got = vec![0; bytes as usize];
            e.read(address, &mut got)?;
            assert_eq!(got, fill::bytes(&Init::Bits, DType::U8, key, 0, bytes)?, "{bytes} bytes");
            e.free(address)?;
        }
        Ok(())
    });
}

#[test]
fn memory_probes_touch_everything_once() {
    run(|e| {
        let out = e.alloc(4)?;
        for unroll in [1u32, 2, 4, 8] {
            // A number of vectors that is no multiple of a chunk, under a looping grid and one block a chunk.
            let vectors = 64 * u64::from(unroll) * 3 + 17;
            let (x, data) = random(e, vectors * 16, u64::from(unroll))?;
            let y = e.alloc(vectors * 16)?;
            let sum = words(&data).into_iter().fold(0u32, u32::wrapping_add);
            let mut got = vec![0; (vectors * 16) as usize];
            for grid in [2, vectors.div_ceil(64 * u64::from(unroll)) as u32] {
                let config = Config { grid, block: 64, unroll };
                e.fill(out, DType::U32, 1, &Init::Zero, 0)?;
                e.launch(&[config.read(x, vectors, out)])?;
                let mut word = [0; 4];
                e.read(out, &mut word)?;
                assert_eq!(u32::from_le_bytes(word), sum, "read {config:?}");

                e.fill(y, DType::U8, vectors * 16, &Init::Poison, 0)?;
                e.launch(&[config.copy(x, y, vectors)])?;
                e.read(y, &mut got)?;
                assert_eq!(got, data, "copy {config:?}");

                e.launch(&[config.write(y, vectors, 99)])?;
                e.read(y, &mut got)?;
                let want: Vec<u32> = (0..vectors).flat_map(|i| probes::pattern(i, 99)).collect();
                assert_eq!(words(&got), want, "write {config:?}");
            }
            e.free(x)?;
            e.free(y)?;
        }
        e.free(out)
    });
}

#[test]
fn the_cache_probe_reads_each_chunk_once_a_pass() {
    run(|e| {
        let config = Config { grid: 3, block: 32, unroll: 2 };
        let vectors = 64 * 5;
        let (x, data) = random(e, vectors * 16, 5)?;
        let out = e.alloc(4)?;
        let sum = words(&data).into_iter().fold(0u32, u32::wrapping_add);
        for passes in [1u32, 4, 7] {
            e.fill(out, DType::U32, 1, &Init::Zero, 0)?;
            e.launch(&[config.read_l2(x, vectors, passes, out)])?;
            let mut word = [0; 4];
            e.read(out, &mut word)?;
            assert_eq!(u32::from_le_bytes(word), sum.wrapping_mul(passes), "{passes} passes");
        }
        e.free(x)?;
        e.free(out)
    });
}

#[test]
fn multiply_adds_are_all_done() {
    run(|e| {
        let out = e.alloc(2 * 64 * 4)?;
        e.launch(&[probes::fma(out, 2, 64, 50, 0.999, 0.001)])?;
        let mut raw = vec![0; 2 * 64 * 4];
        e.read(out, &mut raw)?;
        for (i, word) in words(&raw).into_iter().enumerate() {
            assert_eq!(f32::from_bits(word), probes::fma_result(i as u32 % 32, 50, 0.999, 0.001), "thread {i}");
        }
        e.free(out)
    });
}

#[test]
fn unfused_passes_scale_and_add() {
    run(|e| {
        let mut rng = Rng(3);
        for dtype in [DType::Bf16, DType::F16] {
            for (len, period) in [(4_096u64, 512u64), (1_003, 59), (5, 5)] {
                let mut array = |e: &mut Emulator, n: u64| -> Result<(u64, Vec<u8>)> {
                    let data = fill::bytes(&Init::Normal { std: 1.0 }, dtype, rng.next_u64(), 0, n)?;
                    let address = e.alloc(n * 2)?;
                    e.write(address, &data)?;
                    Ok((address, data))
                };
                let ((x, xs), (mask, ms)) = (array(e, len)?, array(e, period)?);
                let y = e.alloc(len * 2)?;
                let two = [unfused::scale(x, y, len, 0.125, dtype), unfused::add_mask(y, mask, y, len, period, dtype)];
                let one = [unfused::scale_add_mask(x, mask, y, len, period, 0.125, dtype)];
                for launches in [&two[..], &one] {
                    e.write(y, &vec![0xff; len as usize * 2])?;
                    e.launch(launches)?;
                    let mut got = vec![0; len as usize * 2];
                    e.read(y, &mut got)?;
                    for i in 0..len as usize {
                        let scaled = fill::decode(dtype, &xs, i) * 0.125; // exact: a power of two
                        let want = scaled + fill::decode(dtype, &ms, i % period as usize);
                        let have = fill::decode(dtype, &got, i);
                        assert!(
                            (have - want).abs() <= want.abs() * dtype.epsilon() + 1e-7,
                            "{dtype:?} {i}: {have}, {want}"
                        );
                    }
                }
                for address in [x, mask, y] {
                    e.free(address)?;
                }
            }
        }
        Ok(())
    });
}
