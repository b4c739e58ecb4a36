#include "textflag.h"

// func unescapedAVX2(b []byte) (at, after int)
//
// Each block's quotes and backslashes become the bits of two words. Every other backslash of a row escapes the byte behind
// it, from the first on; a subtraction carries through the rows, as in simdjson (Langdale and Lemire 2019). DX is 1 if the
// block's first byte is escaped.
TEXT ·unescapedAVX2(SB), NOSPLIT, $0-40
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), CX
	XORQ DX, DX
	MOVQ SI, DI
	ANDQ $~63, CX
	ADDQ SI, CX
	MOVQ $0xaaaaaaaaaaaaaaaa, R15
	MOVQ $0x2222222222222222, AX // quotes
	MOVQ AX, X2
	VPBROADCASTQ X2, Y2
	MOVQ $0x5c5c5c5c5c5c5c5c, AX // backslashes
	MOVQ AX, X3
	VPBROADCASTQ X3, Y3

block:
	CMPQ SI, CX
	JGE none
	PREFETCHT0 2048(SI) // may lie behind b, which harms nobody; a third less time for what is in no near cache
	VMOVDQU 0(SI), Y0
	VMOVDQU 32(SI), Y1
	VPCMPEQB Y0, Y2, Y4
	VPCMPEQB Y1, Y2, Y5
	VPCMPEQB Y0, Y3, Y6
	VPCMPEQB Y1, Y3, Y7
	VPMOVMSKB Y4, R8
	VPMOVMSKB Y5, AX
	VPMOVMSKB Y6, R9
	VPMOVMSKB Y7, BX
	SHLQ $32, AX
	SHLQ $32, BX
	ORQ AX, R8 // quotes
	ORQ BX, R9 // backslashes

	MOVQ R9, R10
	ORQ DX, R10
	NOTQ DX
	ANDQ R9, DX // first
	LEAQ (DX)(DX*1), AX
	ORQ R15, AX
	SUBQ DX, AX
	XORQ R15, AX // codes
	MOVQ AX, DX
	ANDQ R9, DX
	SHRQ $63, DX // for the next block
	XORQ R10, AX // escaped
	NOTQ AX
	ANDQ R8, AX // quotes that end the string
	JNZ found
	ADDQ $64, SI
	JMP block

found:
	BSFQ AX, AX
	ADDQ AX, SI

none:
	SUBQ DI, SI
	MOVQ SI, at+24(FP)
	MOVQ DX, after+32(FP)
	VZEROUPPER
	RET

#define MULTIPLY(offset, TEXT, HIGH, SUM) \
	VMOVDQU offset(SI), TEXT \
	VPADDD offset(DI), TEXT, TEXT \
	VPSRLQ $32, TEXT, HIGH \
	VPMULUDQ TEXT, HIGH, HIGH \
	VPADDQ HIGH, SUM, SUM

// func sumAVX2(k *HashKey, out []uint64, text *byte)
TEXT ·sumAVX2(SB), NOSPLIT, $0-40
	MOVQ k+0(FP), DI
	MOVQ out_base+8(FP), R8
	MOVQ out_len+16(FP), CX
	MOVQ text+32(FP), SI
	VMOVDQU 256(DI), Y8 // the keys of the folds

next:
	TESTQ CX, CX
	JZ done
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	MULTIPLY(0, Y0, Y1, Y4)
	MULTIPLY(32, Y2, Y3, Y5)
	MULTIPLY(64, Y0, Y1, Y4)
	MULTIPLY(96, Y2, Y3, Y5)
	MULTIPLY(128, Y0, Y1, Y4)
	MULTIPLY(160, Y2, Y3, Y5)
	MULTIPLY(192, Y0, Y1, Y4)
	MULTIPLY(224, Y2, Y3, Y5)
	VPADDQ Y4, Y5, Y4
	VPXOR Y8, Y4, Y4
	VEXTRACTI128 $1, Y4, X5
	MOVQ X4, AX
	VPEXTRQ $1, X4, BX
	MULQ BX
	MOVQ AX, R9
	XORQ DX, R9
	MOVQ X5, AX
	VPEXTRQ $1, X5, BX
	MULQ BX
	XORQ DX, AX
	XORQ R9, AX
	MOVQ AX, (R8)
	ADDQ $8, R8
	ADDQ $256, SI
	DECQ CX
	JMP next

done:
	VZEROUPPER
	RET
