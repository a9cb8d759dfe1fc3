"""The wikis of the demo corpus: the name of each Wikipedia, its main page and its namespaces, as dumps give them."""

from __future__ import annotations

from tokenfree.workflows.demo_corpus.dump_writer import DumpSite

# Wikipedia, main page; then Media, Special, Talk, User, User talk, Project talk, File, File talk, MediaWiki, MediaWiki
# talk, Template, Template talk, Help, Help talk, Category, Category talk (numbers -2, -1, 1-3, 5-15; 4 is the project).
_SITES = {
    "en": "Wikipedia|Main Page|Media|Special|Talk|User|User talk|Wikipedia talk|File|File talk|MediaWiki|MediaWiki talk"
    "|Template|Template talk|Help|Help talk|Category|Category talk",
    "de": "Wikipedia|Wikipedia:Hauptseite|Medium|Spezial|Diskussion|Benutzer|Benutzer Diskussion|Wikipedia Diskussion"
    "|Datei|Datei Diskussion|MediaWiki|MediaWiki Diskussion|Vorlage|Vorlage Diskussion|Hilfe|Hilfe Diskussion"
    "|Kategorie|Kategorie Diskussion",
    "fr": "Wikipédia|Wikipédia:Accueil principal|Média|Spécial|Discussion|Utilisateur|Discussion utilisateur"
    "|Discussion Wikipédia|Fichier|Discussion fichier|MediaWiki|Discussion MediaWiki|Modèle|Discussion modèle|Aide"
    "|Discussion aide|Catégorie|Discussion catégorie",
    "es": "Wikipedia|Wikipedia:Portada|Medio|Especial|Discusión|Usuario|Usuario discusión|Wikipedia discusión|Archivo"
    "|Archivo discusión|MediaWiki|MediaWiki discusión|Plantilla|Plantilla discusión|Ayuda|Ayuda discusión|Categoría"
    "|Categoría discusión",
    "ru": "Википедия|Заглавная страница|Медиа|Служебная|Обсуждение|Участник|Обсуждение участника|Обсуждение Википедии"
    "|Файл|Обсуждение файла|MediaWiki|Обсуждение MediaWiki|Шаблон|Обсуждение шаблона|Справка|Обсуждение справки"
    "|Категория|Обсуждение категории",
    "el": "Βικιπαίδεια|Πύλη:Κύρια|Μέσο|Ειδικό|Συζήτηση|Χρήστης|Συζήτηση χρήστη|Συζήτηση Βικιπαίδεια|Αρχείο"
    "|Συζήτηση αρχείου|MediaWiki|Συζήτηση MediaWiki|Πρότυπο|Συζήτηση προτύπου|Βοήθεια|Συζήτηση βοήθειας|Κατηγορία"
    "|Συζήτηση κατηγορίας",
    "ar": "ويكيبيديا|الصفحة الرئيسية|ميديا|خاص|نقاش|مستخدم|نقاش المستخدم|نقاش ويكيبيديا|ملف|نقاش الملف|ميدياويكي"
    "|نقاش ميدياويكي|قالب|نقاش القالب|مساعدة|نقاش المساعدة|تصنيف|نقاش التصنيف",
    "he": "ויקיפדיה|עמוד ראשי|מדיה|מיוחד|שיחה|משתמש|שיחת משתמש|שיחת ויקיפדיה|קובץ|שיחת קובץ|מדיה ויקי|שיחת מדיה ויקי"
    "|תבנית|שיחת תבנית|עזרה|שיחת עזרה|קטגוריה|שיחת קטגוריה",
    "hi": "विकिपीडिया|मुखपृष्ठ|मीडिया|विशेष|वार्ता|सदस्य|सदस्य वार्ता|विकिपीडिया वार्ता|चित्र|चित्र वार्ता|मीडियाविकि"
    "|मीडियाविकि वार्ता|साँचा|साँचा वार्ता|सहायता|सहायता वार्ता|श्रेणी|श्रेणी वार्ता",
    "bn": "উইকিপিডিয়া|প্রধান পাতা|মিডিয়া|বিশেষ|আলাপ|ব্যবহারকারী|ব্যবহারকারী আলাপ|উইকিপিডিয়া আলোচনা|চিত্র|চিত্র আলোচনা"
    "|মিডিয়াউইকি|মিডিয়াউইকি আলোচনা|টেমপ্লেট|টেমপ্লেট আলোচনা|সাহায্য|সাহায্য আলোচনা|বিষয়শ্রেণী|বিষয়শ্রেণী আলোচনা",
    "th": "วิกิพีเดีย|หน้าหลัก|สื่อ|พิเศษ|พูดคุย|ผู้ใช้|คุยกับผู้ใช้|คุยเรื่องวิกิพีเดีย|ไฟล์|คุยเรื่องไฟล์|มีเดียวิกิ"
    "|คุยเรื่องมีเดียวิกิ|แม่แบบ|คุยเรื่องแม่แบบ|วิธีใช้|คุยเรื่องวิธีใช้|หมวดหมู่|คุยเรื่องหมวดหมู่",
    "zh": "Wikipedia|首页|Media|Special|Talk|User|User talk|Wikipedia talk|File|File talk|MediaWiki|MediaWiki talk"
    "|Template|Template talk|Help|Help talk|Category|Category talk",
    "ja": "Wikipedia|メインページ|メディア|特別|ノート|利用者|利用者‐会話|Wikipedia‐ノート|ファイル|ファイル‐ノート"
    "|MediaWiki|MediaWiki‐ノート|Template|Template‐ノート|Help|Help‐ノート|Category|Category‐ノート",
    "ko": "위키백과|위키백과:대문|미디어|특수|토론|사용자|사용자토론|위키백과토론|파일|파일토론|미디어위키"
    "|미디어위키토론|틀|틀토론|도움말|도움말토론|분류|분류토론",
    "sw": "Wikipedia|Mwanzo|Media|Maalum|Majadiliano|Mtumiaji|Majadiliano ya mtumiaji|Majadiliano ya Wikipedia|Picha"
    "|Majadiliano ya faili|MediaWiki|Majadiliano ya MediaWiki|Kigezo|Majadiliano ya kigezo|Msaada"
    "|Majadiliano ya msaada|Jamii|Majadiliano ya jamii",
    "vi": "Wikipedia|Trang Chính|Phương tiện|Đặc biệt|Thảo luận|Thành viên|Thảo luận Thành viên|Thảo luận Wikipedia"
    "|Tập tin|Thảo luận Tập tin|MediaWiki|Thảo luận MediaWiki|Bản mẫu|Thảo luận Bản mẫu|Trợ giúp|Thảo luận Trợ giúp"
    "|Thể loại|Thảo luận Thể loại",
    "tr": "Vikipedi|Anasayfa|Ortam|Özel|Tartışma|Kullanıcı|Kullanıcı mesaj|Vikipedi tartışma|Dosya|Dosya tartışma"
    "|MediaWiki|MediaWiki tartışma|Şablon|Şablon tartışma|Yardım|Yardım tartışma|Kategori|Kategori tartışma",
    "am": "ውክፔዲያ|ዋናው ገጽ|ፋይል|ልዩ|ውይይት|አባል|አባል ውይይት|ውክፔዲያ ውይይት|ስዕል|ስዕል ውይይት|መልዕክት|መልዕክት ውይይት|መለጠፊያ"
    "|መለጠፊያ ውይይት|እርዳታ|እርዳታ ውይይት|መደብ|መደብ ውይይት",
}
_NUMBERS = (-2, -1, 1, 2, 3, *range(5, 16))


def _site(language: str, line: str) -> DumpSite:
    name, main_page, *names = line.split("|")
    namespaces = {0: "", 4: name, **dict(zip(_NUMBERS, names, strict=True)), 828: "Module", 829: "Module talk"}
    return DumpSite(language, name, main_page, namespaces)


SITES = {language: _site(language, line) for language, line in _SITES.items()}
