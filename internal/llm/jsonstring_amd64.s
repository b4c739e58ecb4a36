#include "textflag.h"

DATA quotes<>+0(SB)/8, $0x2222222222222222
DATA quotes<>+8(SB)/8, $0x2222222222222222
GLOBL quotes<>(SB), RODATA|NOPTR, $16

DATA backslashes<>+0(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA backslashes<>+8(SB)/8, $0x5c5c5c5c5c5c5c5c
GLOBL backslashes<>(SB), RODATA|NOPTR, $16

// MARK sets a bit in QUOTES and one in SLASHES for each of 16 bytes at offset(SI).
#define MARK(offset, QUOTES, SLASHES) \
	MOVOU offset(SI), X0 \
	MOVO X0, X1 \
	PCMPEQB X2, X0 \
	PCMPEQB X3, X1 \
	PMOVMSKB X0, QUOTES \
	PMOVMSKB X1, SLASHES

// func unescapedInBlocks(b []byte, after uint64) (at int, afterAll uint64)
// It uses SSE2, which every amd64 has.
TEXT ·unescapedInBlocks(SB), NOSPLIT, $0-48
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), CX
	MOVQ after+24(FP), DX
	MOVQ SI, DI
	ANDQ $~63, CX
	ADDQ SI, CX
	MOVOU quotes<>(SB), X2
	MOVOU backslashes<>(SB), X3
	MOVQ $0xaaaaaaaaaaaaaaaa, R15

block:
	CMPQ SI, CX
	JGE none
	MARK(0, R8, R9)
	MARK(16, AX, BX)
	SHLQ $16, AX
	SHLQ $16, BX
	ORQ AX, R8
	ORQ BX, R9
	MARK(32, R10, R11)
	MARK(48, AX, BX)
	SHLQ $16, AX
	SHLQ $16, BX
	ORQ AX, R10
	ORQ BX, R11
	SHLQ $32, R10
	SHLQ $32, R11
	ORQ R10, R8 // quotes
	ORQ R11, R9 // backslashes

	// escaping
	MOVQ R9, R10
	ORQ DX, R10
	NOTQ DX
	ANDQ R9, DX     // first
	LEAQ (DX)(DX*1), AX
	ORQ R15, AX
	SUBQ DX, AX
	XORQ R15, AX    // codes
	MOVQ AX, DX
	ANDQ R9, DX
	SHRQ $63, DX    // the next block's after
	XORQ R10, AX    // escaped
	NOTQ AX
	ANDQ R8, AX     // quotes that end the string
	JNZ found
	ADDQ $64, SI
	JMP block

found:
	BSFQ AX, AX
	ADDQ AX, SI

none:
	SUBQ DI, SI
	MOVQ SI, at+32(FP)
	MOVQ DX, afterAll+40(FP)
	RET
