"""Ours in the peers' process: the kernels that `workbench` carries, launched on PyTorch's stream by the CUDA driver.

`workbench show OP --launches SHAPE` says what to launch, `workbench show OP/VARIANT --fatbin` hands over the image; nothing
else of ours runs here. So ours and theirs alternate on the same buffers, in one process, under one clock.
"""
import ctypes
import json
import os
import shutil
import subprocess

from common import Contender, torch

# cuda.h
CLUSTER_DIMENSION, PROGRAMMATIC = 4, 6
MAX_DYNAMIC_SHARED = 8
SCALARS = dict(i32=ctypes.c_int32, u32=ctypes.c_uint32, i64=ctypes.c_int64, u64=ctypes.c_uint64, f32=ctypes.c_float)


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint)]


def find(named):
    """The program: as named, or of this checkout, or on the PATH; None where there is none."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "target", "release", "workbench")
    if named:
        return named
    return here if os.access(here, os.X_OK) else shutil.which("workbench")


class Workbench:
    """One `workbench` program and the images that it has handed over."""

    def __init__(self, program, gpu):
        self.program, self.gpu = program, gpu
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.modules, self.most_shared = {}, {}

    def show(self, *args):
        done = subprocess.run([self.program, "show", *args], capture_output=True, timeout=120)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace").strip() or f"workbench show {' '.join(args)} failed")
        return done.stdout

    def check(self, code, what):
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{what}: {(text.value or b'?').decode()}")

    def function(self, image, entry, shared):
        if image not in self.modules:
            module = ctypes.c_void_p()
            self.check(self.driver.cuModuleLoadData(ctypes.byref(module), self.show(image, "--fatbin")), f"loading {image}")
            self.modules[image] = module
        function = ctypes.c_void_p()
        self.check(self.driver.cuModuleGetFunction(ctypes.byref(function), self.modules[image], entry.encode()), entry)
        # The limit is the function's, for all that is launched of it.
        if shared > self.most_shared.get((image, entry), 0):
            self.most_shared[image, entry] = shared
            self.check(self.driver.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, shared), f"{shared} bytes for {entry}")
        return function

    def contender(self, op, shape, sets, variant=None):
        """What `op` launches at `shape` (its choice, or a variant by name), over `sets`: for each input set a dict of tensors
        by the names of the op's buffers. A contiguous tensor each, of the op's element type."""
        name = f"{op}/{variant}" if variant else op
        plan = json.loads(self.show(name, "--launches", shape, "--gpu", str(self.gpu), "--json", "-"))
        sizes = {b["name"]: b["bytes"] for b in plan["buffers"]}
        if "workspace" in sizes:
            space = torch.zeros(sizes["workspace"], dtype=torch.uint8, device="cuda")
            sets = [dict(s, workspace=space) for s in sets]
        for tensors in sets:
            for key, tensor in tensors.items():
                if key in sizes and tensor is not None and tensor.numel() * tensor.element_size() < sizes[key]:
                    raise ValueError(f"{name}: {key} has {tensor.numel()} elements, which are not {sizes[key]} bytes")
        per_set = [[self.prepared(launch, tensors) for launch in plan["launches"]] for tensors in sets]

        def call(i):
            stream = torch.cuda.current_stream().cuda_stream
            for function, config, pointers, entry, _ in per_set[i]:
                config.stream = stream
                self.check(self.driver.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None), entry)

        contender = Contender("workbench", call, variant=plan["variant"])
        contender.extra["peer"] = None  # a row of ours, which `workbench bench --from` takes as such
        return contender

    def prepared(self, launch, tensors):
        """Function, configuration and argument pointers of a launch, and what must stay alive with them."""
        function = self.function(launch["image"], launch["entry"], launch["shared"])
        attributes = []
        if launch["cluster"] != [1, 1, 1]:
            attributes.append(Attribute(CLUSTER_DIMENSION, 0, (ctypes.c_uint * 16)(*launch["cluster"])))
        if launch["programmatic"] and torch.cuda.get_device_capability()[0] >= 9:
            attributes.append(Attribute(PROGRAMMATIC, 0, (ctypes.c_uint * 16)(1)))
        attributes = (Attribute * max(1, len(attributes)))(*attributes), len(attributes)
        config = Config((ctypes.c_uint * 3)(*launch["grid"]), (ctypes.c_uint * 3)(*launch["block"]), launch["shared"], None, *attributes)
        values = [self.value(arg, tensors) for arg in launch["args"]]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        return function, config, pointers, launch["entry"], (values, attributes)

    @staticmethod
    def value(arg, tensors):
        if "buffer" in arg:
            return ctypes.c_uint64(tensors[arg["buffer"]].data_ptr() + arg["offset"])
        if "tensor_map" in arg:
            raise NotImplementedError("kernels that take tensor maps are timed by `workbench bench` only")
        (kind, number), = arg.items()
        return SCALARS[kind](number)
