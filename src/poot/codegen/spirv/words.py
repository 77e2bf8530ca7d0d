"""SPIR-V modules as words: the opcodes in use, and a builder that keeps sections in order.

Sources of the numbers: SPIR-V specification 1.3, section 3 "Binary Form";
SPV_KHR_cooperative_matrix, SPV_KHR_bfloat16 and SPV_KHR_vulkan_memory_model.
"""

from __future__ import annotations

import struct

MAGIC = 0x07230203
VERSION = 0x00010300

# Operand letters: T result type, R result id, i id, n literal word, s string; `*` repeats the last.
OPCODES: dict[str, tuple[int, str]] = {
    "OpName": (5, "is"), "OpExtension": (10, "s"), "OpExtInstImport": (11, "Rs"),
    "OpExtInst": (12, "TRini*"), "OpMemoryModel": (14, "nn"), "OpEntryPoint": (15, "nisi*"),
    "OpExecutionMode": (16, "inn*"), "OpCapability": (17, "n"), "OpTypeVoid": (19, "R"),
    "OpTypeBool": (20, "R"), "OpTypeInt": (21, "Rnn"), "OpTypeFloat": (22, "Rnn*"),
    "OpTypeVector": (23, "Rin"), "OpTypeArray": (28, "Rii"), "OpTypeRuntimeArray": (29, "Ri"),
    "OpTypeStruct": (30, "Ri*"), "OpTypePointer": (32, "Rni"), "OpTypeFunction": (33, "Ri*"),
    "OpConstantTrue": (41, "TR"), "OpConstantFalse": (42, "TR"), "OpConstant": (43, "TRn*"),
    "OpFunction": (54, "TRni"), "OpFunctionEnd": (56, ""), "OpVariable": (59, "TRn"),
    "OpLoad": (61, "TRin*"), "OpStore": (62, "iin*"), "OpAccessChain": (65, "TRi*"),
    "OpDecorate": (71, "in*"), "OpMemberDecorate": (72, "inn*"),
    "OpCompositeConstruct": (80, "TRi*"), "OpCompositeExtract": (81, "TRin*"),
    "OpConvertFToU": (109, "TRi"), "OpConvertFToS": (110, "TRi"), "OpConvertSToF": (111, "TRi"),
    "OpConvertUToF": (112, "TRi"), "OpUConvert": (113, "TRi"), "OpSConvert": (114, "TRi"),
    "OpFConvert": (115, "TRi"), "OpBitcast": (124, "TRi"), "OpSNegate": (126, "TRi"),
    "OpFNegate": (127, "TRi"), "OpIAdd": (128, "TRii"), "OpFAdd": (129, "TRii"),
    "OpISub": (130, "TRii"), "OpFSub": (131, "TRii"), "OpIMul": (132, "TRii"),
    "OpFMul": (133, "TRii"), "OpUDiv": (134, "TRii"), "OpSDiv": (135, "TRii"),
    "OpFDiv": (136, "TRii"), "OpUMod": (137, "TRii"), "OpSRem": (138, "TRii"),
    "OpLogicalEqual": (164, "TRii"), "OpLogicalNotEqual": (165, "TRii"),
    "OpLogicalOr": (166, "TRii"), "OpLogicalAnd": (167, "TRii"), "OpLogicalNot": (168, "TRi"),
    "OpSelect": (169, "TRiii"), "OpIEqual": (170, "TRii"), "OpINotEqual": (171, "TRii"),
    "OpUGreaterThan": (172, "TRii"), "OpSGreaterThan": (173, "TRii"),
    "OpUGreaterThanEqual": (174, "TRii"), "OpSGreaterThanEqual": (175, "TRii"),
    "OpULessThan": (176, "TRii"), "OpSLessThan": (177, "TRii"),
    "OpULessThanEqual": (178, "TRii"), "OpSLessThanEqual": (179, "TRii"),
    "OpFOrdEqual": (180, "TRii"),
    "OpFOrdLessThan": (184, "TRii"), "OpFOrdGreaterThan": (186, "TRii"),
    "OpFOrdLessThanEqual": (188, "TRii"), "OpFOrdGreaterThanEqual": (190, "TRii"),
    "OpShiftRightLogical": (194, "TRii"), "OpShiftRightArithmetic": (195, "TRii"),
    "OpShiftLeftLogical": (196, "TRii"), "OpBitwiseOr": (197, "TRii"),
    "OpBitwiseXor": (198, "TRii"), "OpBitwiseAnd": (199, "TRii"), "OpNot": (200, "TRi"),
    "OpControlBarrier": (224, "iii"), "OpMemoryBarrier": (225, "ii"),
    "OpAtomicExchange": (229, "TRiiii"), "OpAtomicIAdd": (234, "TRiiii"),
    "OpAtomicSMin": (236, "TRiiii"), "OpAtomicUMin": (237, "TRiiii"),
    "OpAtomicSMax": (238, "TRiiii"), "OpAtomicUMax": (239, "TRiiii"),
    "OpAtomicAnd": (240, "TRiiii"), "OpAtomicOr": (241, "TRiiii"), "OpLoopMerge": (246, "iin"),
    "OpSelectionMerge": (247, "in"), "OpLabel": (248, "R"), "OpBranch": (249, "i"),
    "OpBranchConditional": (250, "iii"), "OpReturn": (253, ""),
    "OpGroupNonUniformAll": (334, "TRii"), "OpGroupNonUniformAny": (335, "TRii"),
    "OpGroupNonUniformBroadcast": (337, "TRiii"), "OpGroupNonUniformBallot": (339, "TRii"),
    "OpGroupNonUniformShuffle": (345, "TRiii"), "OpGroupNonUniformShuffleXor": (346, "TRiii"),
    "OpGroupNonUniformIAdd": (349, "TRini"), "OpGroupNonUniformFAdd": (350, "TRini"),
    "OpGroupNonUniformSMin": (353, "TRini"), "OpGroupNonUniformUMin": (354, "TRini"),
    "OpGroupNonUniformFMin": (355, "TRini"), "OpGroupNonUniformSMax": (356, "TRini"),
    "OpGroupNonUniformUMax": (357, "TRini"), "OpGroupNonUniformFMax": (358, "TRini"),
    "OpTypeCooperativeMatrixKHR": (4456, "Riiiii"),
    "OpCooperativeMatrixLoadKHR": (4457, "TRiiin*"),
    "OpCooperativeMatrixStoreKHR": (4458, "iiiin*"),
    "OpCooperativeMatrixMulAddKHR": (4459, "TRiii"),
}  # fmt: skip

CAPABILITIES = {
    "Shader": 1, "Float16": 9, "Int64": 11, "GroupNonUniform": 61, "GroupNonUniformVote": 62,
    "GroupNonUniformArithmetic": 63, "GroupNonUniformBallot": 64, "GroupNonUniformShuffle": 65,
    "StorageBuffer16BitAccess": 4433, "BFloat16TypeKHR": 5116,
    "BFloat16CooperativeMatrixKHR": 5118, "VulkanMemoryModel": 5345,
    "VulkanMemoryModelDeviceScope": 5346, "CooperativeMatrixKHR": 6022,
}  # fmt: skip
STORAGE = {"Input": 1, "Uniform": 2, "Workgroup": 4, "Function": 7, "StorageBuffer": 12}
DECORATIONS = {"Block": 2, "ArrayStride": 6, "BuiltIn": 11, "Coherent": 23, "NonWritable": 24,
               "NonReadable": 25, "Binding": 33, "DescriptorSet": 34, "Offset": 35}  # fmt: skip
BUILTINS = {"NumWorkgroups": 24, "WorkgroupId": 26, "LocalInvocationIndex": 29,
            "SubgroupSize": 36, "SubgroupId": 40, "SubgroupLocalInvocationId": 41}  # fmt: skip
GLSL = {"RoundEven": 2, "FAbs": 4, "SAbs": 5, "Floor": 8, "Exp2": 29, "Log2": 30, "Sqrt": 31,
        "InverseSqrt": 32, "FMin": 37, "UMin": 38, "SMin": 39, "FMax": 40, "UMax": 41, "SMax": 42,
        "Fma": 50, "PackHalf2x16": 58, "UnpackHalf2x16": 62}  # fmt: skip


# name -> (opcode, how many operands at least, whether exactly so many)
_COUNTS = {
    name: (code, len(letters.rstrip("*")) - letters.count("*"), not letters.endswith("*"))
    for name, (code, letters) in OPCODES.items()
}


def string_words(text: str) -> list[int]:
    """UTF-8 with a closing zero, padded to whole little-endian words."""
    raw = text.encode() + b"\0"
    raw += b"\0" * (-len(raw) % 4)
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


def encode(name: str, *operands: int | str) -> list[int]:
    """One instruction's words. The operand count is checked against the opcode's letters."""
    code, least, is_exact = _COUNTS[name]
    count = len(operands)
    assert count == least if is_exact else count >= least, (name, operands)
    words = [0]
    for operand in operands:
        if isinstance(operand, str):
            words += string_words(operand)
        else:
            words.append(operand & 0xFFFFFFFF)
    words[0] = len(words) << 16 | code
    return words


SECTIONS = ("capability", "extension", "import", "model", "entry", "mode", "name", "decorate",
            "global", "function")  # fmt: skip


class Module:
    """Collects words by section. A type, constant or capability asked for twice is made once."""

    def __init__(self) -> None:
        self._sections: dict[str, list[int]] = {s: [] for s in SECTIONS}
        self._made: dict[tuple[int | str, ...], int] = {}
        self._capabilities: set[str] = set()
        self._last = 0

    def new_id(self) -> int:
        self._last += 1
        return self._last

    def put(self, section: str, name: str, *operands: int | str) -> None:
        self._sections[section] += encode(name, *operands)

    def raw(self, section: str, words: list[int]) -> None:
        self._sections[section] += words

    def capability(self, name: str) -> None:
        if name not in self._capabilities:
            self._capabilities.add(name)
            self.put("capability", "OpCapability", CAPABILITIES[name])

    def extension(self, name: str) -> None:
        key = ("OpExtension", name)
        if key not in self._made:
            self._made[key] = 0
            self.put("extension", "OpExtension", name)

    def type(self, name: str, *operands: int) -> int:
        """A type by its opcode and operands, made once."""
        key = (name, *operands)
        if key not in self._made:
            made = self._made[key] = self.new_id()
            self.put("global", name, made, *operands)
        return self._made[key]

    def fresh_type(self, name: str, *operands: int) -> int:
        """A type of its own, so that it can carry decorations."""
        made = self.new_id()
        self.put("global", name, made, *operands)
        return made

    def constant(self, type_id: int, *words: int) -> int:
        key = ("OpConstant", type_id, *words)
        if key not in self._made:
            made = self._made[key] = self.new_id()
            self.put("global", "OpConstant", type_id, made, *words)
        return self._made[key]

    def truth(self, type_id: int, value: bool) -> int:
        name = "OpConstantTrue" if value else "OpConstantFalse"
        if (name,) not in self._made:
            made = self._made[(name,)] = self.new_id()
            self.put("global", name, type_id, made)
        return self._made[(name,)]

    def variable(self, pointer: int, storage: str) -> int:
        made = self.new_id()
        self.put("global", "OpVariable", pointer, made, STORAGE[storage])
        return made

    def decorate(self, target: int, decoration: str, *values: int) -> None:
        self.put("decorate", "OpDecorate", target, DECORATIONS[decoration], *values)

    def decorate_member(self, target: int, member: int, decoration: str, *values: int) -> None:
        self.put("decorate", "OpMemberDecorate", target, member, DECORATIONS[decoration], *values)

    def binary(self) -> bytes:
        words = [MAGIC, VERSION, 0, self._last + 1, 0]
        for section in SECTIONS:
            words += self._sections[section]
        return struct.pack(f"<{len(words)}I", *words)
