//! The vendor library's matrix product as one more row: the same buffers, the same clock, the same check.

use super::arrays::Arrays;
use super::measure::Work;
use crate::error::{Error, Result};
use crate::launch::{Device, Memory, Stream, libs};
use crate::op::{DType, Shape};
use cudarc::cublaslt::sys::{self, cublasStatus_t};
use std::ffi::c_void;

/// What the library may use as scratch.
const WORKSPACE: u64 = 32 << 20;

/// `out[m, n] = x[m, k] · w[n, k]ᵀ` by cuBLASLt, with the first algorithm of its heuristic.
pub struct CublasLt {
    name: String,
    handle: sys::cublasLtHandle_t,
    operation: sys::cublasLtMatmulDesc_t,
    /// w, x, out, as the column-major matrices that the library sees.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: Memory,
    sets: Vec<[u64; 3]>,
}

/// Whether cuBLASLt can be loaded.
pub fn present() -> bool {
    // SAFETY: only tries to load the library.
    libs::available("cublasLt", || unsafe { sys::is_culib_present() })
}

fn check(status: cublasStatus_t, doing: &str) -> Result<()> {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        status => Err(Error::check(format!("cuBLASLt, {doing}: {status:?}"))),
    }
}

impl CublasLt {
    /// The product of a `matmul` shape over input sets; none where the library is absent or the shape fuses more than
    /// a product.
    pub fn product(device: &Device, shape: &Shape, sets: &[Arrays]) -> Result<Option<Self>> {
        let plain = |key| shape.word(key).is_none_or(|word| word == "none");
        if !plain("pre") || !plain("post") || !present() {
            return Ok(None);
        }
        let (m, n, k) = (shape.int("m")?, shape.int("n")?, shape.int("k")?);
        if m == 0 || n == 0 || k == 0 {
            return Ok(None);
        }
        let input = shape.dtype()?;
        let output = shape.dtype_or("out", input)?;
        let (Some(input), Some(output)) = (data_type(input), data_type(output)) else { return Ok(None) };
        let mut addresses = Vec::new();
        for set in sets {
            let at = set.bindings();
            addresses.push([at.get("w")?, at.get("x")?, at.get("out")?]);
        }
        Self::new(device, [m, n, k], input, output, addresses).map(Some)
    }

    /// A product on settled addresses (w, x, out).
    pub(super) fn new(
        device: &Device,
        [m, n, k]: [u64; 3],
        input: sys::cudaDataType,
        output: sys::cudaDataType,
        sets: Vec<[u64; 3]>,
    ) -> Result<Self> {
        let null = std::ptr::null_mut();
        let mut product = Self {
            name: "cublaslt".into(),
            handle: null,
            operation: std::ptr::null_mut(),
            layouts: [std::ptr::null_mut(); 3],
            // SAFETY: plain data, overwritten below.
            algorithm: unsafe { std::mem::zeroed() },
            workspace: Memory::new(device, WORKSPACE)?,
            sets,
        };
        // SAFETY: every out pointer is valid, every descriptor is created before it is used and destroyed on drop, and
        // each attribute has the size of its documented type.
        unsafe {
            check(sys::cublasLtCreate(&mut product.handle), "starting")?;
            let float = sys::cudaDataType::CUDA_R_32F;
            let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
            check(sys::cublasLtMatmulDescCreate(&mut product.operation, compute, float), "describing a product")?;
            // Row-major w[n, k] is column-major [k, n]: transposed it gives [n, k], and x gives [k, m] as it lies.
            let transpose: i32 = 1;
            check(
                sys::cublasLtMatmulDescSetAttribute(
                    product.operation,
                    sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                    (&raw const transpose).cast(),
                    size_of::<i32>(),
                ),
                "transposing",
            )?;
            for (slot, (kind, rows, columns)) in [(input, k, n), (input, k, m), (output, n, m)].into_iter().enumerate()
            {
                check(
                    sys::cublasLtMatrixLayoutCreate(&mut product.layouts[slot], kind, rows, columns, rows as i64),
                    "describing a matrix",
                )?;
            }
            let mut preference = std::ptr::null_mut();
            check(sys::cublasLtMatmulPreferenceCreate(&mut preference), "stating preferences")?;
            let size = WORKSPACE as usize;
            let stated = sys::cublasLtMatmulPreferenceSetAttribute(
                preference,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const size).cast(),
                size_of::<usize>(),
            );
            let mut found: sys::cublasLtMatmulHeuristicResult_t = std::mem::zeroed();
            let mut count = 0;
            let [a, b, d] = product.layouts;
            let asked = sys::cublasLtMatmulAlgoGetHeuristic(
                product.handle,
                product.operation,
                a,
                b,
                d,
                d,
                preference,
                1,
                &mut found,
                &mut count,
            );
            let _ = sys::cublasLtMatmulPreferenceDestroy(preference);
            check(stated, "stating preferences")?;
            check(asked, "choosing an algorithm")?;
            if count == 0 {
                return Err(Error::check(format!("cuBLASLt has no algorithm for m={m}, n={n}, k={k}")));
            }
            product.algorithm = found.algo;
        }
        Ok(product)
    }

    /// Version of the library as one number.
    pub fn version() -> Option<usize> {
        // SAFETY: the library is present.
        present().then(|| unsafe { sys::cublasLtGetVersion() })
    }
}

fn data_type(dtype: DType) -> Option<sys::cudaDataType> {
    Some(match dtype {
        DType::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        DType::F16 => sys::cudaDataType::CUDA_R_16F,
        DType::F32 => sys::cudaDataType::CUDA_R_32F,
        _ => return None,
    })
}

impl Work for CublasLt {
    fn name(&self) -> &str {
        &self.name
    }
    fn sets(&self) -> usize {
        self.sets.len()
    }
    fn enqueue(&self, set: usize, stream: &Stream) -> Result<()> {
        let [w, x, out] = self.sets[set];
        let (one, zero) = (1f32, 0f32);
        let [a, b, d] = self.layouts;
        // SAFETY: live descriptors, device addresses of the described sizes, scalars read before the call returns.
        let status = unsafe {
            sys::cublasLtMatmul(
                self.handle,
                self.operation,
                (&raw const one).cast::<c_void>(),
                w as *const c_void,
                a,
                x as *const c_void,
                b,
                (&raw const zero).cast::<c_void>(),
                out as *const c_void,
                d,
                out as *mut c_void,
                d,
                &self.algorithm,
                self.workspace.address() as *mut c_void,
                WORKSPACE as usize,
                stream.raw().cast(),
            )
        };
        check(status, "multiplying")
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: each was created at most once and is null otherwise.
        unsafe {
            for layout in self.layouts.into_iter().filter(|l| !l.is_null()) {
                let _ = sys::cublasLtMatrixLayoutDestroy(layout);
            }
            if !self.operation.is_null() {
                let _ = sys::cublasLtMatmulDescDestroy(self.operation);
            }
            if !self.handle.is_null() {
                let _ = sys::cublasLtDestroy(self.handle);
            }
        }
    }
}
