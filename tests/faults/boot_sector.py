"""A guest in 512 bytes: it writes memory at a chosen rate and appends numbered sectors to its disk. Needs no operating
system.

With every tick of the BIOS's timer (18.2 a second) it writes one word into each of some pages of a span of its memory,
and one sector to its disk: sector n holds n, followed by the numbers that a generator makes from n, so every byte of it
can be checked. Started again, it goes on after the last sector. A byte on its serial port switches it off.

Its memory at 0x500 holds the number that it writes next, at 0x504 the place in the span.
"""

from __future__ import annotations

import struct

__all__ = ["COUNTER", "SECTOR", "SPAN_MIB", "boot_sector", "count", "sector"]

SECTOR = 512
COUNTER = 0x500
SPAN_MIB = 32
_PAGES = 0x60  # where the number of pages stands in the program
_FACTOR, _SUMMAND = 1664525, 1013904223

# Bytes, and what the processor reads there; 16-bit code, loaded at 0x7c00.
_PROGRAM = """
fa                   cli
31 c0                xor  ax, ax
8e d8                mov  ds, ax
8e c0                mov  es, ax
8e d0                mov  ss, ax
bc 00 7c             mov  sp, 0x7c00
66 a3 00 05          mov  [0x500], eax
66 c7 06 04 05 00 00 30 00   mov dword [0x504], 0x300000
66 ff 06 00 05       inc  dword [0x500]      ; next: where the last run ended
b4 42                mov  ah, 0x42           ; read
e8 8f 00             call disk
66 a1 00 05          mov  eax, [0x500]
66 3b 06 00 80       cmp  eax, [0x8000]
74 eb                je   next
fb                   sti                     ; tick:
f4                   hlt
ba fd 03             mov  dx, 0x3fd          ; something on the serial port?
ec                   in   al, dx
a8 01                test al, 1
74 07                jz   on
ba 04 06             mov  dx, 0x604          ; ACPI's switch on QEMU's q35
b8 00 20             mov  ax, 0x2000
ef                   out  dx, ax
fa                   cli                     ; on: reach all memory through fs
0f 01 16 d6 7c       lgdt [gdtr]
0f 20 c0             mov  eax, cr0
40                   inc  ax
0f 22 c0             mov  cr0, eax
bb 08 00             mov  bx, 8
8e e3                mov  fs, bx
48                   dec  ax
0f 22 c0             mov  cr0, eax
8e 26 ec 7c          mov  fs, [zero]
fb                   sti
66 8b 3e 04 05       mov  edi, [0x504]
b9 00 00             mov  cx, pages
66 a1 00 05          mov  eax, [0x500]       ; page:
64 67 66 89 07       mov  fs:[edi], eax
66 81 c7 00 10 00 00 add  edi, 4096
66 81 ff 00 00 30 02 cmp  edi, 0x2300000
72 06                jb   within
66 bf 00 00 30 00    mov  edi, 0x300000
e2 df                loop page               ; within:
66 89 3e 04 05       mov  [0x504], edi
66 a1 00 05          mov  eax, [0x500]
bf 00 80             mov  di, 0x8000
b9 80 00             mov  cx, 128
66 ab                stosd                   ; fill:
66 69 c0 0d 66 19 00 imul eax, 1664525
66 05 5f f3 6e 3c    add  eax, 1013904223
e2 ef                loop fill
b4 43                mov  ah, 0x43           ; write
e8 0a 00             call disk
72 84                jc   tick
66 ff 06 00 05       inc  dword [0x500]
e9 7c ff             jmp  tick
66 8b 0e 00 05       mov  ecx, [0x500]       ; disk: the BIOS's extended read or write of one sector
66 89 0e ce 7c       mov  [lba], ecx
be c6 7c             mov  si, packet
b2 80                mov  dl, 0x80
b0 00                mov  al, 0
cd 13                int  0x13
c3                   ret
10 00 01 00 00 80 00 00      packet: one sector at 0:0x8000
00 00 00 00 00 00 00 00      lba
0f 00 dc 7c 00 00            gdtr
00 00 00 00 00 00 00 00      gdt
ff ff 00 00 00 92 cf 00      all memory, to be read and written
00 00                        zero
"""


def boot_sector(pages_per_tick: int) -> bytes:
    """The sector; it writes this many pages (1 to 65535) with each tick, 18.2 times a second."""
    rows = [row.split() for row in _PROGRAM.strip().splitlines()]
    code = bytearray()
    for row in rows:
        for word in row:
            if len(word) != 2 or not set(word) <= set("0123456789abcdef"):
                break
            code.append(int(word, 16))
    struct.pack_into("<H", code, _PAGES, pages_per_tick)
    return bytes(code).ljust(SECTOR - 2, b"\0") + b"\x55\xaa"


def sector(number: int) -> bytes:
    """What the guest writes as this sector."""
    words, word = [], number
    for _index in range(SECTOR // 4):
        words.append(word)
        word = (word * _FACTOR + _SUMMAND) & 0xFFFFFFFF
    return struct.pack(f"<{len(words)}I", *words)


def count(disk: bytes) -> int:
    """How many sectors stand on a disk (its beginning), from 1 on; raises ValueError when one is missing or wrong."""
    pieces = [disk[start : start + SECTOR] for start in range(SECTOR, len(disk), SECTOR)]
    written = max((number for number, piece in enumerate(pieces, 1) if any(piece)), default=0)
    wrong = [number for number in range(1, written + 1) if pieces[number - 1] != sector(number)]
    if wrong:
        raise ValueError(f"{len(wrong)} of {written} sectors are wrong or missing, the first is {wrong[0]}")
    return written
