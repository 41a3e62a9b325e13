"""Folds a sentence for matching, without moving a character.

Owns what counts as the same letter: case, curly and straight quotation marks, full-width digits,
traditional and simplified characters as far as the rules use them. Must never change a length:
what is found in the folded sentence stands at the same place in the one that was said. Long
quotations are blanked, since they are somebody else's words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


BLANK: Final = "\ufffc"
"""Stands for each character of a long quotation; no rule matches it."""

_TRADITIONAL: Final = (
    "記決這個換採後須務別還沒為號徑網連對說錯應該們會時間實現開關問題請總統並從動機數據庫設監聽運"
    "檔預軟體資測試線環過歡慣習討厭無讓當與樣點鐘週項標準確認寫檢處佈發壞閃壓憶碼裡麼嗎給戶證書權"
    "級隊頁導讀結構轉傳輸進遷條約選擇賴鎖終驗誤報斷帳訂單價費東業內國語義員優暫臨調補滿畢嘗緩備錄"
    "誌圖層協議訪負載責擔則禮筆風險歲頭買賣飯貓藥醫飛車鐵燈電腦視訊簡爾啟啓創刪維護齊鏡響經緯雲節"
    "輯輪邊鍵盤評論審閱複雜復製隨盡儘絕許縮緊鬆嚴變憑聯絡繫係計畫劃執領銷毀屬參願諾聞聲稱貼範規適"
    "際專歷曆舊於齡雙幾隻種類顯長煩張樂訓練細緒師帶異顧頻額離難雖驅魚遠遞達遲郵錢鏈閉順裝見覺覽觸"
    "訴詢詳話誰課談識譯貨較輕辦況洩潰滾熱獨獲產瞭穩競紀純紙組綁績續萬僅億倉儲兩冊剛區卻團場塊夠學"
    "將幣幫廢強徹徵態掛損擴攔術極樓樹橋欄養餘館騎賽質賬蘋虛職聰腳舉藍紅綠黃溫灣濕淨淺災燒牆狀療癥"
    "盜睏稅簽籤簾糧綜編緝縣罰聖膚臟艦莊蓋襪親託誠謝譜讚貴賓贊趕跡躍軌輛農釋針鈕銀銜鋪錶鍋鑰閒陽階"
    "雞霧靜頂頓顆飲馬駐鬧麥麵黨齒"
)
_SIMPLIFIED: Final = (
    "记决这个换采后须务别还没为号径网连对说错应该们会时间实现开关问题请总统并从动机数据库设监听运"
    "档预软体资测试线环过欢惯习讨厌无让当与样点钟周项标准确认写检处布发坏闪压忆码里么吗给户证书权"
    "级队页导读结构转传输进迁条约选择赖锁终验误报断账订单价费东业内国语义员优暂临调补满毕尝缓备录"
    "志图层协议访负载责担则礼笔风险岁头买卖饭猫药医飞车铁灯电脑视讯简尔启启创删维护齐镜响经纬云节"
    "辑轮边键盘评论审阅复杂复制随尽尽绝许缩紧松严变凭联络系系计画划执领销毁属参愿诺闻声称贴范规适"
    "际专历历旧于龄双几只种类显长烦张乐训练细绪师带异顾频额离难虽驱鱼远递达迟邮钱链闭顺装见觉览触"
    "诉询详话谁课谈识译货较轻办况泄溃滚热独获产了稳竞纪纯纸组绑绩续万仅亿仓储两册刚区却团场块够学"
    "将币帮废强彻征态挂损扩拦术极楼树桥栏养余馆骑赛质账苹虚职聪脚举蓝红绿黄温湾湿净浅灾烧墙状疗症"
    "盗困税签签帘粮综编缉县罚圣肤脏舰庄盖袜亲托诚谢谱赞贵宾赞赶迹跃轨辆农释针钮银衔铺表锅钥闲阳阶"
    "鸡雾静顶顿颗饮马驻闹麦面党齿"
)
_CLOSINGS: Final = {"“": "”", "「": "」", "『": "』"}
_PLAIN: Final = {
    **dict.fromkeys("“”「」『』", '"'),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("\u3000\u00a0", " "),
    "：": ":",
}
_FULL_WIDTH: Final = {0xFF10 + digit: str(digit) for digit in range(10)}
_FOLDS: Final[dict[int, str]] = {
    **dict(zip(map(ord, _TRADITIONAL), _SIMPLIFIED, strict=True)),
    **{ord(mark): plain for mark, plain in _PLAIN.items()},
    **_FULL_WIDTH,
}
_QUOTED: Final = re.compile(
    r"“([^”\n]{1,2000})”|「([^」\n]{1,2000})」|『([^』\n]{1,2000})』|\"([^\"\n]{1,400})\""
)
_OPEN: Final = re.compile(r"[“「『](?=[^”」』]{8,}$)")
_LONG_QUOTE_WORDS: Final = 5
_LONG_QUOTE_CHINESE: Final = 8
_CHINESE: Final = re.compile(r"[\u3400-\u9fff]")


def folded(text: str) -> str:
    """One line for matching, as long as it was."""
    return folded_lines([text])[0]


def folded_lines(lines: Iterable[str]) -> list[str]:
    """Lines that follow each other, for matching; a quotation may go over several of them."""
    result: list[str] = []
    closing = ""
    for line in lines:
        kept = line
        if closing:
            end = line.find(closing)
            kept = BLANK * len(line) if end < 0 else BLANK * end + line[end:]
            closing = closing if end < 0 else ""
        kept = _QUOTED.sub(_blanked, kept)
        opened = None if closing else _OPEN.search(kept)
        if opened is not None:
            closing = _CLOSINGS[opened[0]]
            kept = kept[: opened.end()] + BLANK * (len(kept) - opened.end())
        result.append(_lowered(kept).translate(_FOLDS))
    return result


def has_chinese(sentence: str) -> bool:
    """Whether there are Chinese characters in it."""
    return _CHINESE.search(sentence) is not None


def _lowered(text: str) -> str:
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _blanked(quoted: re.Match[str]) -> str:
    inner = quoted[0][1:-1]
    long = len(inner.split()) >= _LONG_QUOTE_WORDS
    if long or len(_CHINESE.findall(inner)) >= _LONG_QUOTE_CHINESE:
        return quoted[0][0] + BLANK * len(inner) + quoted[0][-1]
    return quoted[0]
