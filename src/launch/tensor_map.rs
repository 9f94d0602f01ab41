//! Tensor maps (TMA descriptors) from their description in a launch.

use super::driver::check;
use crate::error::{Error, Result};
use crate::op::{DType, TensorMap};
use cudarc::driver::sys;

/// Encodes a map. The driver checks most rules; the ones that it reports as a bare "invalid argument" are named here.
pub fn encode(map: &TensorMap) -> Result<sys::CUtensorMap> {
    use sys::CUtensorMapDataType_enum as Type;
    use sys::CUtensorMapSwizzle_enum as Swizzle;
    let rank = map.dims.len();
    let broken = |why: String| Err(Error::usage(format!("tensor map {:?}, box {:?}: {why}", map.dims, map.box_dims)));
    if !(1..=5).contains(&rank) || map.strides.len() + 1 != rank || map.box_dims.len() != rank {
        return broken(format!("{rank} dimensions, {} strides, {} box sides", map.strides.len(), map.box_dims.len()));
    }
    if !map.address.is_multiple_of(16) || map.strides.iter().any(|s| s % 16 != 0) {
        return broken(format!("address {:#x} and strides {:?} must be multiples of 16", map.address, map.strides));
    }
    if map.box_dims.iter().any(|side| !(1..=256).contains(side)) {
        return broken("a box side is outside 1..=256".into());
    }
    let row = u64::from(map.box_dims[0]) * map.dtype.size();
    if !row.is_multiple_of(16) || (map.swizzle > 0 && row > u64::from(map.swizzle)) {
        return broken(format!("{row} bytes of the innermost side with a swizzle of {} bytes", map.swizzle));
    }
    let dtype = match map.dtype {
        DType::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::Bf16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::E4m3 | DType::U8 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        DType::I32 => Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::U32 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        DType::I64 => Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
    };
    let swizzle = match map.swizzle {
        0 => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        other => return broken(format!("a swizzle of {other} bytes")),
    };
    let steps = vec![1u32; rank];
    let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: every array has `rank` entries (strides one fewer), as the call wants.
    let status = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut encoded,
            dtype,
            rank as u32,
            map.address as *mut _,
            map.dims.as_ptr(),
            map.strides.as_ptr(),
            map.box_dims.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    check(status, || format!("encoding tensor map {:?}, strides {:?}, box {:?}", map.dims, map.strides, map.box_dims))?;
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_named_before_the_driver_sees_them() {
        let good = TensorMap {
            address: 256,
            dtype: DType::Bf16,
            dims: vec![128, 64],
            strides: vec![256],
            box_dims: vec![64, 64],
            swizzle: 128,
        };
        for (broken, says) in [
            (TensorMap { strides: vec![], ..good.clone() }, "0 strides"),
            (TensorMap { address: 8, ..good.clone() }, "multiples of 16"),
            (TensorMap { box_dims: vec![64, 512], ..good.clone() }, "1..=256"),
            (TensorMap { box_dims: vec![128, 64], ..good.clone() }, "256 bytes"),
            (TensorMap { swizzle: 48, box_dims: vec![8, 8], ..good.clone() }, "swizzle of 48"),
        ] {
            assert!(encode(&broken).unwrap_err().what.contains(says), "{says}");
        }
    }
}
